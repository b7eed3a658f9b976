package registry

import (
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// TestTheNewestVersionIsTheNewestDeployment puts two versions in transactions that begin in the other order, and a third
// one after the database's clock was set back.
func TestTheNewestVersionIsTheNewestDeployment(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	r := New(pool, time.Now)
	document := func(output string) []byte { return []byte("{flow: f, steps: {a: {set: " + output + "}}}") }
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var begin time.Time // the first statement fixes it
	if err := tx.QueryRow(t.Context(), `SELECT now()`).Scan(&begin); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Put(t.Context(), "p", document("1")); err != nil {
		t.Fatal(err)
	}
	p, err := flow.Parse(document("2"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.put(t.Context(), tx, "p", p, document("2")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = pool.Exec(t.Context(), `UPDATE deployments SET created_at = now() + interval '1 hour' WHERE id = 'f@2'`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Put(t.Context(), "p", document("3")); err != nil {
		t.Fatal(err)
	}
	var ordered bool
	err = pool.QueryRow(t.Context(), `
		SELECT array_agg(id ORDER BY created_at) = '{f@1,f@2,f@3}' AND count(DISTINCT created_at) = 3 FROM deployments`).
		Scan(&ordered)
	if err != nil || !ordered {
		t.Errorf("the deployments are not in the order of the versions (%v)", err)
	}
}

// TestOrderOfFieldsIsNoVersion: also of a version that was stored with the fields in another order.
func TestOrderOfFieldsIsNoVersion(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	r := New(pool, time.Now)
	for _, test := range []struct {
		document string
		version  int64
		created  bool
	}{
		{"{flow: f, describe: d, steps: {a: {set: 1, when: 'true'}, b: {set: 1}}}", 1, true},
		{"{steps: {a: {when: 'true', set: 1}, b: {set: 1}}, describe: d, flow: f}", 1, false},
		{"{flow: f, describe: d, steps: {b: {set: 1}, a: {set: 1, when: 'true'}}}", 2, true},
		{"{flow: f, describe: d, steps: {a: {set: 1, when: 'true'}, b: {set: 1}}}", 3, true},
	} {
		s, err := r.Put(t.Context(), "p", []byte(test.document))
		if err != nil || s.Version.Version != test.version || s.Created != test.created {
			t.Errorf("%s: version %d, created %v (%v)", test.document, s.Version.Version, s.Created, err)
		}
	}
	for _, document := range []string{
		"{catalog: c, describe: d, steps: {a: {set: 1, gives: {x: {}}}}}",
		"{describe: d, steps: {a: {gives: {x: {}}, set: 1}}, catalog: c}",
	} {
		if c, _, err := r.PutCatalog(t.Context(), "p", []byte(document), false); err != nil || c.Version != 1 {
			t.Errorf("%s: version %d (%v)", document, c.Version, err)
		}
	}
}
