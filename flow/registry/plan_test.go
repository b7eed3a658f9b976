package registry

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/flow/goal"
)

func putCatalog(t *testing.T, r *Registry, document string) {
	t.Helper()
	if _, _, err := r.PutCatalog(t.Context(), project, []byte(document), false); err != nil {
		t.Fatal(err)
	}
}

// greeting is a catalog whose step s is planned again.
const greeting = `
catalog: c
attributes: {a: {type: string}}
steps:
  s: {flow: {catalog: kid, want: x}, takes: {a: {}}, gives: {x: {}}}
`

const kid = `
catalog: kid
steps:
  s: {set: {x: "${a}"}, takes: {a: {optional: true}}, gives: {x: {}}}
`

// wantPlan plans the goal x of the catalog c, and checks which version it is.
func wantPlan(t *testing.T, r *Registry, want string) {
	t.Helper()
	ask := goal.Ask{Want: []string{"x"}, Have: []string{"a"}}
	if got, err := r.Plan(t.Context(), project, "c", ask, []byte(`{"have":{"a":"1"}}`)); err != nil || got != want {
		t.Errorf("the plan is %s (%v), want %s", got, err, want)
	}
}

// TestEqualPlansAreOne puts catalogs with the same plan, one whose child has another, and retires that.
func TestEqualPlansAreOne(t *testing.T) {
	t.Parallel()
	r, _ := newRegistry(t)
	putCatalog(t, r, kid)
	putCatalog(t, r, greeting)
	wantPlan(t, r, "c@1")
	putCatalog(t, r, greeting+"  other: {set: 1, takes: {x: {}}}\n")
	wantPlan(t, r, "c@1")
	putCatalog(t, r, strings.Replace(kid, "${a}", "a ${a}", 1)) // the child has another plan
	wantPlan(t, r, "c@2")
	if _, err := r.Retire(t.Context(), project, "c", 2); err != nil {
		t.Fatal(err)
	}
	wantPlan(t, r, "c@3")
}

// TestStands compares versions with a document: one by older rules does not do, and one that is retired does not.
func TestStands(t *testing.T) {
	t.Parallel()
	digest := []byte("1")
	for _, test := range []struct {
		name string
		v    Version
		want bool
	}{
		{"the same", Version{Digest: digest, Semantics: flow.Semantics}, true},
		{"another document", Version{Digest: []byte("2"), Semantics: flow.Semantics}, false},
		{"older rules", Version{Digest: digest, Semantics: flow.Semantics - 1}, false},
		{"retired", Version{Digest: digest, Semantics: flow.Semantics, RetiredAt: new(time.Now())}, false},
	} {
		if got := test.v.stands(digest); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

// TestARefusedStartStoresNoPlan refuses an input for its schema: neither the plan nor that of the child is there.
func TestARefusedStartStoresNoPlan(t *testing.T) {
	t.Parallel()
	r, pool := newRegistry(t)
	putCatalog(t, r, kid)
	putCatalog(t, r, greeting)
	ask := goal.Ask{Want: []string{"x"}, Have: []string{"a"}}
	if _, err := r.Plan(t.Context(), project, "c", ask, []byte(`{"have":{"a":1}}`)); err == nil || !strings.Contains(err.Error(), "have") {
		t.Errorf("got %v, want what is wrong in have", err)
	}
	execute(t, pool, `INSERT INTO deployments (project, id, url) VALUES ('p', 'c@1', 'http://app')`)
	if _, err := r.Plan(t.Context(), project, "c", ask, []byte(`{"have":{"a":"1"}}`)); !errors.Is(err, ErrTaken) {
		t.Errorf("the last insert fails: got %v, want ErrTaken", err)
	}
	var plans int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM flow_versions WHERE name <> 'f'`).Scan(&plans); err != nil || plans != 0 {
		t.Errorf("%d plans are stored (%v), want none", plans, err)
	}
}

// TestOldPlansMakeRoom reaches the limit: the oldest plans that nothing uses begin no more runs.
func TestOldPlansMakeRoom(t *testing.T) {
	t.Parallel()
	r, pool := newRegistry(t)
	putCatalog(t, r, kid)
	putCatalog(t, r, greeting)
	execute(t, pool, fmt.Sprintf(`
		INSERT INTO deployments (project, id, url, workflows) SELECT 'p', 'c@' || n, 'flow:c@' || n, '{c}'
			FROM generate_series(1, %d) n;
		INSERT INTO flow_versions (project, name, version, deployment_id, digest, document, semantics, created_at)
			SELECT 'p', 'c', n, 'c@' || n, '', '', 1, now() FROM generate_series(1, %[1]d) n;
		UPDATE flow_versions SET document = '{flow: f, deployment: c@2}' WHERE deployment_id = 'f@1'`, MaxPlans))
	if _, err := r.PutAlias(t.Context(), project, "c", "old", 1); err != nil {
		t.Fatal(err)
	}
	wantPlan(t, r, fmt.Sprintf("c@%d", MaxPlans+1))
	for version, want := range map[int64]bool{1: false, 2: false, 3: true, maxRetired + 2: true, maxRetired + 3: false} {
		v, err := r.Version(t.Context(), project, "c", version)
		if err != nil || (v.RetiredAt != nil) != want {
			t.Errorf("version %d is retired: %v (%v), want %v", version, v.RetiredAt != nil, err, want)
		}
	}
	execute(t, pool, `UPDATE deployments SET retired_at = NULL;
		UPDATE flow_versions SET document = (SELECT string_agg(deployment_id, ' ') FROM flow_versions WHERE name = 'c')
			WHERE deployment_id = 'f@1'`)
	_, err := r.Plan(t.Context(), project, "c", goal.Ask{Want: []string{"s"}, Have: []string{"a"}}, []byte(`{"have":{"a":"1"}}`))
	if !errors.Is(err, ErrTooManyPlans) {
		t.Errorf("all are in use: got %v, want ErrTooManyPlans", err)
	}
}

// TestPlansOfChildren plans children that are the same, that are too many, and that plan themselves.
func TestPlansOfChildren(t *testing.T) {
	t.Parallel()
	r, pool := newRegistry(t)
	// Each of six catalogs has the next one three times: 364 plans, of which six are different.
	for i := range 5 {
		putCatalog(t, r, strings.ReplaceAll(fmt.Sprintf(`
catalog: tree%d
steps:
  a: {KID, gives: {a1: {from: result.x}}}
  b: {KID, gives: {b1: {from: result.x}}}
  c: {KID, gives: {c1: {from: result.x}}}
  d: {set: {x: 1}, takes: {a1: {}, b1: {}, c1: {}}, gives: {x: {}}}
`, i), "KID", fmt.Sprintf("flow: {catalog: tree%d, want: x}", i+1)))
	}
	putCatalog(t, r, `{catalog: tree5, steps: {a: {set: {x: 1}, gives: {x: {}}}}}`)
	if _, err := r.Preview(t.Context(), project, "tree0", 0, goal.Ask{Want: []string{"x"}}); err != nil {
		t.Errorf("a tree of equal children: %v", err)
	}

	var wide, known strings.Builder
	for i := range 100 {
		fmt.Fprintf(&wide, "  s%d: {flow: {catalog: leaf, want: x}, takes: {a%[1]d: {}}, gives: {a%d: {from: result.x}}}\n", i, i+1)
		fmt.Fprintf(&known, "a%d: {}, ", i)
	}
	putCatalog(t, r, "catalog: wide\nattributes: {a0: {}}\nsteps:\n"+wide.String())
	putCatalog(t, r, "catalog: leaf\nattributes: {"+known.String()+"}\nsteps:\n  s: {flow: {catalog: tree5, want: x}, gives: {x: {}}}\n")
	ask := goal.Ask{Want: []string{"a100"}, Have: []string{"a0"}}
	if _, err := r.Preview(t.Context(), project, "wide", 0, ask); !errors.Is(err, goal.ErrTooLarge) {
		t.Errorf("101 different children: got %v, want ErrTooLarge", err)
	}

	execute(t, pool, `INSERT INTO deployments (project, id, url, workflows) VALUES ('p', 'shop', 'http://app', '{order}')`)
	_, _, err := r.PutCatalog(t.Context(), project, []byte("{catalog: order, steps: {s: {set: 1}}}"), false)
	if !errors.Is(err, ErrNameTaken) {
		t.Errorf("a catalog with the name of an app's workflow: got %v, want ErrNameTaken", err)
	}
	putCatalog(t, r, "catalog: loop\nsteps:\n  s: {flow: {catalog: loop, want: x}, gives: {x: {}}}\n")
	if _, err := r.Preview(t.Context(), project, "loop", 0, goal.Ask{Want: []string{"x"}}); !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("a catalog that plans itself: got %v, want ErrInvalid", err)
	}
}

// TestVersionsHaveALimit: the oldest that were retired make room, but for those with runs, for those that were retired
// just now, and for the newest. If there are none, one more is refused.
func TestVersionsHaveALimit(t *testing.T) {
	t.Parallel()
	r, pool := newRegistry(t)
	execute(t, pool, fmt.Sprintf(`
		INSERT INTO deployments (project, id, url, workflows, retired_at)
			SELECT 'p', 'f@' || n, 'flow:f@' || n, '{f}', CASE n WHEN 4 THEN now() WHEN 5 THEN NULL
				ELSE now() - interval '2 days' END FROM generate_series(3, %d) n;
		INSERT INTO flow_versions (project, name, version, deployment_id, digest, document, semantics, created_at)
			SELECT 'p', 'f', n, 'f@' || n, '', '', 1, now() FROM generate_series(3, %[1]d) n;
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, created_at, updated_at)
			VALUES ('wrun_1', 'p', 'f@3', 'f', 'running', 1, 1, now(), now())`, MaxVersions))
	put := func(value int) error {
		_, err := r.Put(t.Context(), project, fmt.Appendf(nil, "{flow: f, steps: {a: {set: %d}}}", value))
		return err
	}
	if err := put(3); err != nil {
		t.Fatal(err)
	}
	versions, err := r.Versions(t.Context(), project, "f")
	if err != nil || len(versions) != MaxVersions-maxForgotten+1 || versions[0].Version != MaxVersions+1 {
		t.Fatalf("%d versions are left, up to %d (%v)", len(versions), versions[0].Version, err)
	}
	for i, want := range []int64{1, 2, 3, 4, 5, maxForgotten + 6} {
		if got := versions[len(versions)-1-i].Version; got != want {
			t.Errorf("version %d is left, want %d", got, want)
		}
	}
	if _, err := pool.Exec(t.Context(), `SELECT 1 / (count(*) - $1) FROM deployments`, len(versions)-1); err != nil {
		t.Errorf("deployments are not deleted with their versions: %v", err)
	}
	execute(t, pool, `
		INSERT INTO deployments (project, id, url) SELECT 'p', 'f@' || n, 'flow:f@' || n FROM generate_series(6, 505) n;
		INSERT INTO flow_versions (project, name, version, deployment_id, digest, document, semantics, created_at)
			SELECT 'p', 'f', n, 'f@' || n, '', '', 1, now() FROM generate_series(6, 505) n;
		UPDATE deployments SET retired_at = CASE WHEN id = 'f@10001' THEN now() - interval '2 days' END`)
	if err := put(4); !errors.Is(err, ErrTooManyVersions) {
		t.Errorf("got %v, want ErrTooManyVersions", err)
	}
}

// TestTheNewestVersionsOfACatalogAreKept, and its name still counts.
func TestTheNewestVersionsOfACatalogAreKept(t *testing.T) {
	t.Parallel()
	r, pool := newRegistry(t)
	putCatalog(t, r, kid)
	execute(t, pool, fmt.Sprintf(`INSERT INTO catalogs (project, name, version, digest, document, created_at)
		SELECT 'p', 'kid', n, '', '', now() FROM generate_series(2, %d) n`, MaxCatalogVersions))
	putCatalog(t, r, kid)
	list, err := r.CatalogVersions(t.Context(), project, "kid", 0)
	if err != nil || len(list) != MaxCatalogVersions || list[0].Version != MaxCatalogVersions+1 || list[0].Document != kid {
		t.Errorf("%d versions are left, up to %d (%v)", len(list), list[0].Version, err)
	}
	execute(t, pool, fmt.Sprintf(`INSERT INTO catalogs (project, name, version, digest, document, created_at)
		SELECT 'p', 'c' || n, 1, '', '', now() FROM generate_series(2, %d) n`, MaxCatalogs))
	if _, _, err := r.PutCatalog(t.Context(), project, []byte(greeting), false); !errors.Is(err, ErrTooManyCatalogs) {
		t.Errorf("one more catalog: got %v, want ErrTooManyCatalogs", err)
	}
}
