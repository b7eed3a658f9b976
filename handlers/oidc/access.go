package oidc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
)

// maxGrants limits the projects that open when a person signs in.
const maxGrants = 100

// roles are those that people may have, the one with the most rights first.
var roles = []admin.Role{admin.RoleAdmin, admin.RoleWrite, admin.RoleRead, admin.RoleMetadata}

// Access is what groups allow.
type Access []grant

// grant gives the members of a group a role in a project.
type grant struct {
	group   string
	project entities.Project
	role    admin.Role
}

// ParseAccess parses grants such as "default:admin=sre; shop:read=support". Whoever is in several groups has the role
// with the most rights.
func ParseAccess(text string) (Access, error) {
	var access Access
	projects := map[entities.Project]bool{}
	for part := range strings.SplitSeq(text, ";") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		what, group, _ := strings.Cut(part, "=")
		what = strings.TrimSpace(what)
		colon := strings.LastIndexByte(what, ':')
		if colon < 0 || strings.TrimSpace(group) == "" {
			return nil, fmt.Errorf("%q: want PROJECT:ROLE=GROUP, such as default:admin=sre", part)
		}
		g := grant{strings.TrimSpace(group), entities.Project(what[:colon]), admin.Role(what[colon+1:])}
		if err := entities.ValidateID("project", string(g.project)); err != nil {
			return nil, fmt.Errorf("%q: %w", part, err)
		}
		if !slices.Contains(roles, g.role) {
			return nil, fmt.Errorf("%q: the role %q is not one of %v", part, g.role, roles)
		}
		projects[g.project] = true
		access = append(access, g)
	}
	if len(access) == 0 {
		return nil, errors.New("no group has access: want PROJECT:ROLE=GROUP, such as default:admin=sre")
	}
	if len(projects) > maxGrants {
		return nil, fmt.Errorf("%d projects; at most %d are allowed", len(projects), maxGrants)
	}
	return access, nil
}

// of returns the role in each project of a person who is a member of some groups.
func (a Access) of(member func(group string) bool) map[entities.Project]admin.Role {
	best := map[entities.Project]admin.Role{}
	for _, g := range a {
		had, has := best[g.project]
		if member(g.group) && (!has || slices.Index(roles, g.role) < slices.Index(roles, had)) {
			best[g.project] = g.role
		}
	}
	return best
}
