package access

import (
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// TestRacingSignInsOfAPerson: a person who signs in 16 times at once, with two sets of groups, has the keys of one of
// them, one a project; those of the other one have ended.
func TestRacingSignInsOfAPerson(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	now := func() time.Time { return t0 }
	for _, project := range []entities.Project{"a", "b", "c"} {
		if _, err := NewProjects(pool, now).Put(t.Context(), project, nil); err != nil {
			t.Fatal(err)
		}
	}
	grants := []map[entities.Project]admin.Role{
		{"a": admin.RoleRead, "b": admin.RoleRead, "none": admin.RoleAdmin}, {"b": admin.RoleAdmin, "c": admin.RoleAdmin},
	}
	s := NewKeys(pool, now)
	var racers sync.WaitGroup
	for n := range 16 {
		racers.Go(func() {
			opened, err := s.Admit(t.Context(), Person{Subject: "issuer anna", Name: "anna", Grants: grants[n%2]})
			if err != nil || len(opened) != 2 || opened[0].Key.Role != opened[1].Key.Role {
				t.Errorf("got %+v, %v", opened, err)
			}
		})
	}
	racers.Wait()
	valid := map[entities.Project]admin.Role{}
	for _, project := range []entities.Project{"a", "b", "c"} {
		keys, _, err := admin.ListKeys(t.Context(), pg.NewPool(pool), project, pg.Page{Limit: 10})
		if err != nil || len(keys) != 1 {
			t.Fatalf("%s has the keys %+v, %v; want one", project, keys, err)
		}
		if !keys[0].Expired(t0) {
			valid[project] = keys[0].Role
		}
	}
	if valid["b"] == "" || len(valid) != 2 || (valid["a"] == "") != (valid["b"] == admin.RoleAdmin) {
		t.Errorf("the person has %v, want the keys of one sign-in", valid)
	}
	if has, err := admin.HasAdminKey(t.Context(), pg.NewPool(pool), t0); has || err != nil {
		t.Errorf("a person's key is the admin key of a server: %t, %v", has, err)
	}
}
