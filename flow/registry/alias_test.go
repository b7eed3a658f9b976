package registry

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

const project = entities.Project("p")

// newRegistry returns a registry with two versions of the flow f.
func newRegistry(t *testing.T) (*Registry, *pgxpool.Pool) {
	t.Helper()
	pool := testdb.Pool(t)
	r := New(pool, time.Now)
	for _, value := range []string{"1", "2"} {
		if _, err := r.Put(t.Context(), project, []byte("{flow: f, steps: {a: {set: "+value+"}}}")); err != nil {
			t.Fatal(err)
		}
	}
	return r, pool
}

func execute(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// TestNoDeploymentIsOverwritten puts a version, and an alias, whose ID an app has registered.
func TestNoDeploymentIsOverwritten(t *testing.T) {
	t.Parallel()
	r, pool := newRegistry(t)
	execute(t, pool, `INSERT INTO deployments (project, id, url) VALUES ('p', 'f@3', 'http://app'), ('p', 'f@live', 'http://app')`)
	document := []byte("{flow: f, steps: {a: {set: 3}}}")
	for name, put := range map[string]func(context.Context, entities.Project, []byte) (Stored, error){
		"put": r.Put, "dry run": r.Check,
	} {
		if _, err := put(t.Context(), project, document); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), "f@3") {
			t.Errorf("%s: got %v, want ErrTaken that names f@3", name, err)
		}
	}
	if _, err := r.PutAlias(t.Context(), project, "f", "live", 2); !errors.Is(err, ErrTaken) {
		t.Errorf("alias: got %v, want ErrTaken", err)
	}
	var rows int
	err := pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM flow_versions) + (SELECT count(*) FROM flow_aliases) +
		(SELECT count(*) FROM deployments WHERE url = 'http://app')`).Scan(&rows)
	if err != nil || rows != 4 { // two versions, no alias, and both apps
		t.Errorf("%d rows are left, want 4 (%v)", rows, err)
	}
}

// TestAliasesMove moves an alias, and refuses what it cannot point to.
func TestAliasesMove(t *testing.T) {
	t.Parallel()
	r, _ := newRegistry(t)
	for _, version := range []int64{1, 2} {
		a, err := r.PutAlias(t.Context(), project, "f", "prod", version)
		if err != nil || a.ID != "f@prod" {
			t.Fatalf("got %v, %v", a, err)
		}
	}
	list, err := r.Aliases(t.Context(), project, "f")
	if err != nil || len(list) != 1 || list[0].Version != 2 {
		t.Errorf("the aliases are %v, %v; want prod for version 2", list, err)
	}
	if _, err := r.PutAlias(t.Context(), project, "f", "prod", 3); !errors.Is(err, ErrNotFound) {
		t.Errorf("version 3: got %v, want ErrNotFound", err)
	}
	for _, alias := range []string{"", "1", "2b", "a@b", strings.Repeat("a", 65)} {
		if _, err := r.PutAlias(t.Context(), project, "f", alias, 1); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", alias, err)
		}
	}
	if err := r.RemoveAlias(t.Context(), project, "f", "prod"); err != nil {
		t.Error(err)
	}
	if err := r.RemoveAlias(t.Context(), project, "f", "prod"); !errors.Is(err, ErrAliasNotFound) {
		t.Errorf("removed twice: got %v, want ErrAliasNotFound", err)
	}
}

// TestWhatIsUsedIsNotRetired has each kind of user hold version 1, or the alias, and then retires the version.
func TestWhatIsUsedIsNotRetired(t *testing.T) {
	t.Parallel()
	r, pool := newRegistry(t)
	if _, err := r.PutAlias(t.Context(), project, "f", "old", 1); err != nil {
		t.Fatal(err)
	}
	users := func(deployment string) {
		execute(t, pool, `
			INSERT INTO schedules (project, name, id, cron, every, time_zone, workflow, deployment, input, attributes, timeout,
				overlap, catch_up, catch_up_window, jitter, decided_until, created_at, updated_at)
			VALUES ('p', 'nightly', 'sched_1', '', '1h', 'UTC', 'f', '`+deployment+`', '', '{}', '0', 'skip', 'latest', '1h', '0',
				now(), now(), now());
			INSERT INTO triggers (project, name, id, kind, source, condition, statuses, verify, secret, workflow, deployment,
				input, attributes, unique_key, joins, timeout, pause_note, revision, created_at, updated_at)
			VALUES ('p', 'paid', 'trg_1', 'signal', 's', '', '{}', '', '', 'f', '`+deployment+`', '', '{}', '', false, '0', '', 1,
				now(), now());
			INSERT INTO collections (run_id, project, workflow, kind, key, quiet, max_wait, keep, size, max_bytes, deployment,
				data, timeout, input, count, bytes, first_at, last_at, due_at)
			VALUES ('wrun_1', 'p', 'f', 'batch', '', '0', '1h', 'all', 2, 9, '`+deployment+`', '{}', '0', '', 1, 1, now(), now(), now())`)
	}
	free := func() { execute(t, pool, `DELETE FROM schedules; DELETE FROM triggers; DELETE FROM collections`) }
	users("f@1")
	_, err := r.Retire(t.Context(), project, "f", 1)
	for _, user := range []string{"the alias old", "the schedule nightly", "the trigger paid", "the collection wrun_1"} {
		if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), user) {
			t.Errorf("got %v, want ErrInUse that names %s", err, user)
		}
	}
	free()
	users("f@old")
	if err := r.RemoveAlias(t.Context(), project, "f", "old"); !errors.Is(err, ErrInUse) {
		t.Errorf("the alias: got %v, want ErrInUse", err)
	}
	free()
	if err := r.RemoveAlias(t.Context(), project, "f", "old"); err != nil {
		t.Fatal(err)
	}
	first, err := r.Retire(t.Context(), project, "f", 1)
	if err != nil || first.RetiredAt == nil {
		t.Fatalf("got %v, %v", first, err)
	}
	if _, err := r.PutAlias(t.Context(), project, "f", "old", 1); !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("an alias for a retired version: got %v, want ErrInvalid", err)
	}
	if _, err := r.Retire(t.Context(), project, "f", 2); err != nil {
		t.Fatal(err)
	}
	again, err := r.Put(t.Context(), project, []byte("{flow: f, steps: {a: {set: 2}}}"))
	if err != nil || !again.Created || again.Version.Version != 3 {
		t.Errorf("the document of a retired version is %v, %v; want version 3", again.Version, err)
	}
}

// TestAnAliasNeverPointsToARetiredVersion lets eight aliases race with the end of their version.
func TestAnAliasNeverPointsToARetiredVersion(t *testing.T) {
	t.Parallel()
	r, pool := newRegistry(t)
	var all sync.WaitGroup
	for _, alias := range strings.Split("abcdefgh", "") {
		all.Go(func() {
			_, err := r.PutAlias(t.Context(), project, "f", alias, 1)
			if err != nil && !errors.Is(err, entities.ErrInvalid) {
				t.Error(err)
			}
		})
	}
	all.Go(func() {
		if _, err := r.Retire(t.Context(), project, "f", 1); err != nil && !errors.Is(err, ErrInUse) {
			t.Error(err)
		}
	})
	all.Wait()
	var aliases int
	var retired bool
	err := pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM flow_aliases), retired_at IS NOT NULL
		FROM deployments WHERE id = 'f@1'`).Scan(&aliases, &retired)
	if err != nil || retired == (aliases > 0) {
		t.Errorf("retired: %t, with %d aliases (%v)", retired, aliases, err)
	}
}
