package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
)

// Permission is what a route requires of a client's role.
type Permission string

// The permissions. Admin, write, read and metadata each include those after them.
const (
	Admin    Permission = "admin"
	Write    Permission = "write"
	Read     Permission = "read"
	Metadata Permission = "metadata"
	// Invoke is for the roles write and invoke.
	Invoke Permission = "invoke"
	// Any is for all roles that use runs: all but worker.
	Any Permission = "any"
	// Register is for what registers deployments, and Registered for what shows one. Keys of the role worker are also
	// checked by [Identity.CheckDeployment].
	Register   Permission = "register"
	Registered Permission = "registered"
)

// allowedRoles are the roles that have each permission.
var allowedRoles = map[Permission][]admin.Role{
	Admin:    {admin.RoleAdmin},
	Write:    {admin.RoleAdmin, admin.RoleWrite},
	Read:     {admin.RoleAdmin, admin.RoleWrite, admin.RoleRead},
	Metadata: {admin.RoleAdmin, admin.RoleWrite, admin.RoleRead, admin.RoleMetadata},
	Invoke:   {admin.RoleAdmin, admin.RoleWrite, admin.RoleInvoke},
	Any:      {admin.RoleAdmin, admin.RoleWrite, admin.RoleRead, admin.RoleMetadata, admin.RoleInvoke},
	Register: {admin.RoleAdmin, admin.RoleWorker},
	Registered: {
		admin.RoleAdmin, admin.RoleWrite, admin.RoleRead, admin.RoleMetadata, admin.RoleWorker,
	},
}

func (p Permission) allows(role admin.Role) bool { return slices.Contains(allowedRoles[p], role) }

// Check fails with [ErrForbidden] unless the client has the permission. It is for what a route allows to some clients
// only; routes themselves are checked before their handlers.
func (i Identity) Check(p Permission) error {
	if p.allows(i.Role) {
		return nil
	}
	return &ForbiddenError{Role: i.Role, Allowed: allowedRoles[p]}
}

// CheckDeployment fails with [ErrForbidden] if the key is for deployments other than this one.
func (i Identity) CheckDeployment(id string) error {
	if i.Role != admin.RoleWorker || i.key.Registers(id) {
		return nil
	}
	return fmt.Errorf("%w: the key is for the deployments %s only", ErrForbidden, i.key.Deployments)
}

// ErrForbidden is returned when the key is valid but lacks the permission.
var ErrForbidden = errors.New("forbidden")

// ErrNotOperator is an [ErrForbidden] of requests that name another project.
var ErrNotOperator = fmt.Errorf("%w: this requires an admin key of the project %s",
	ErrForbidden, entities.DefaultProject)

// errOtherProject is an [ErrForbidden] of operator-wide routes.
var errOtherProject = fmt.Errorf("%w: this requires a key of the project %s", ErrForbidden, entities.DefaultProject)

// ForbiddenError is an [ErrForbidden] that lists the roles that have the permission.
type ForbiddenError struct {
	Role    admin.Role
	Allowed []admin.Role
}

func (e *ForbiddenError) Error() string {
	var names []string
	for _, role := range e.Allowed {
		names = append(names, string(role))
	}
	needed := strings.Join(names, ", ")
	if i := strings.LastIndex(needed, ", "); i >= 0 {
		needed = needed[:i] + " or " + needed[i+2:]
	}
	return fmt.Sprintf("the key's role is %s; this needs %s", e.Role, needed)
}

// Is makes errors.Is(err, ErrForbidden) true.
func (e *ForbiddenError) Is(target error) bool { return target == ErrForbidden }

// Details returns the roles in a form that programs can read.
func (e *ForbiddenError) Details() map[string]any {
	return map[string]any{"role": e.Role, "allowed": e.Allowed}
}
