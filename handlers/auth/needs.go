package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
)

// Needs is what a route needs: the least role that is enough, or one of the two that stand aside.
type Needs string

// What routes need. Each is enough for those that come before it in the row admin, write, read, metadata.
const (
	Admin    Needs = "admin"
	Write    Needs = "write"
	Read     Needs = "read"
	Metadata Needs = "metadata"
	// Invoke needs write or invoke.
	Invoke Needs = "invoke"
	// Any needs a key of any role.
	Any Needs = "any"
)

// allowed are the roles that have what is needed.
var allowed = map[Needs][]admin.Role{
	Admin:    {admin.RoleAdmin},
	Write:    {admin.RoleAdmin, admin.RoleWrite},
	Read:     {admin.RoleAdmin, admin.RoleWrite, admin.RoleRead},
	Metadata: {admin.RoleAdmin, admin.RoleWrite, admin.RoleRead, admin.RoleMetadata},
	Invoke:   {admin.RoleAdmin, admin.RoleWrite, admin.RoleInvoke},
	Any:      admin.Roles(),
}

func (n Needs) allows(role admin.Role) bool { return slices.Contains(allowed[n], role) }

// permit fails with [ErrForbidden].
func (n Needs) permit(who Identity) error {
	if n.allows(who.Role) {
		return nil
	}
	return &ForbiddenError{Role: who.Role, Allowed: allowed[n]}
}

// ErrForbidden says that the key is good, but not for this.
var ErrForbidden = errors.New("forbidden")

// ErrNotOperator is an [ErrForbidden] of what concerns other projects.
var ErrNotOperator = fmt.Errorf("%w: it takes an admin key of the project %s", ErrForbidden, entities.DefaultProject)

// ErrOtherProject is an [ErrForbidden] of what concerns the whole installation, and needs no admin.
var ErrOtherProject = fmt.Errorf("%w: it takes a key of the project %s", ErrForbidden, entities.DefaultProject)

// ForbiddenError is an [ErrForbidden] that says which roles may.
type ForbiddenError struct {
	Role    admin.Role
	Allowed []admin.Role
}

func (e *ForbiddenError) Error() string {
	var names []string
	for _, role := range e.Allowed {
		names = append(names, string(role))
	}
	return fmt.Sprintf("the key's role is %s; this takes %s", e.Role, strings.Join(names, " or "))
}

// Is makes errors.Is(err, ErrForbidden) true.
func (e *ForbiddenError) Is(target error) bool { return target == ErrForbidden }

// Details are what the error says, for programs to read.
func (e *ForbiddenError) Details() map[string]any {
	return map[string]any{"role": e.Role, "allowed": e.Allowed}
}
