package store

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// attributeRows reads the attribute rows of a run.
func attributeRows(t *testing.T, q pg.Querier, id entities.RunID) map[string]string {
	t.Helper()
	rows, err := q.Query(t.Context(), `SELECT key, value FROM run_attributes WHERE run_id = $1`, id)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	var key, value string
	if _, err := pgx.ForEachRow(rows, []any{&key, &value}, func() error { got[key] = value; return nil }); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestWriteAttributesMakesRowsEqualTheAttributes(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	run := manyRuns()[1]
	run.Attributes = map[string]string{}
	insertRuns(t, pool, []entities.Run{run})
	for _, step := range []struct {
		after      map[string]string
		statements int
	}{
		{map[string]string{}, 0},
		{map[string]string{"a": "1", "b": ""}, 1},
		{map[string]string{"a": "1", "b": ""}, 0},
		{map[string]string{"a": "2", "b": "", "c": "3"}, 1},
		{map[string]string{"c": "3"}, 1},
		{map[string]string{"c": "4", "a": ""}, 1},
		{map[string]string{"d": "5"}, 2},
		{nil, 1},
	} {
		after := run
		after.Attributes = step.after
		var b pgx.Batch
		WriteAttributes(pg.Batch{Batch: &b}, &run, &after)
		if b.Len() != step.statements {
			t.Errorf("from %v to %v: %d statements, want %d", run.Attributes, after.Attributes, b.Len(), step.statements)
		}
		if err := pool.SendBatch(t.Context(), &b).Close(); err != nil {
			t.Fatal(err)
		}
		run = after
		want := step.after
		if want == nil {
			want = map[string]string{}
		}
		if diff := cmp.Diff(want, attributeRows(t, pool, run.ID)); diff != "" {
			t.Errorf("rows (-want +got):\n%s", diff)
		}
	}
}

// TestLongestAttributeFitsIntoTheIndexes: Postgres limits the size of an index entry to about a third of a page.
func TestLongestAttributeFitsIntoTheIndexes(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	random := rand.New(rand.NewChaCha8([32]byte{1}))
	long := func(runes int) string { // random, so that it cannot be compressed
		var s strings.Builder
		for range runes {
			s.WriteRune(rune(0x20000 + random.IntN(0xa000))) // four bytes each
		}
		return s.String()
	}
	run := manyRuns()[0]
	run.ID = entities.RunID(long(256 / 4))
	run.WorkflowName = long(1024 / 4)
	key, value := long(256), long(256/4)
	run.Attributes = map[string]string{key: value}
	if err := (entities.AttributeChange{Key: key, Value: &value}).Validate(true); err != nil {
		t.Fatal(err)
	}
	insertRuns(t, pool, []entities.Run{run})
	if diff := cmp.Diff(run.Attributes, attributeRows(t, pool, run.ID)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestListAttributeKeys(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	var runs []entities.Run
	for i := range 24 {
		r := manyRuns()[1]
		r.ID, r.WorkflowName = entities.RunID(fmt.Sprintf("wrun_%02d", i)), []string{"order", "refund"}[i/12]
		r.CreatedAt = day.Add(time.Duration(i) * time.Second)
		r.Attributes = map[string]string{"id": fmt.Sprint(i)}
		if i%3 == 0 {
			r.Attributes["b"] = "x"
		}
		if i == 5 {
			r.Attributes["$root"], r.Attributes["Z"], r.Attributes["ä"] = "x", "x", "x"
		}
		runs = append(runs, r)
	}
	other := runs[0]
	other.ID, other.Project, other.Attributes = "wrun_other", stranger, map[string]string{"theirs": "x"}
	insertRuns(t, pool, append(runs, other))
	at := func(i int) time.Time { return day.Add(time.Duration(i) * time.Second) }
	root, b, id := AttributeKey{"$root", 1, at(5), at(5)}, AttributeKey{"b", 8, at(0), at(21)}, AttributeKey{"id", 24, at(0), at(23)}
	z, umlaut := AttributeKey{"Z", 1, at(5), at(5)}, AttributeKey{"ä", 1, at(5), at(5)}
	for name, tt := range map[string]struct {
		f    KeyFilter
		p    pg.Page
		want []AttributeKey
	}{
		"all":        {KeyFilter{}, pg.Page{Limit: 100}, []AttributeKey{root, z, b, id, umlaut}},
		"in pages":   {KeyFilter{}, pg.Page{Limit: 2}, []AttributeKey{root, z, b, id, umlaut}},
		"full page":  {KeyFilter{}, pg.Page{Limit: 5}, []AttributeKey{root, z, b, id, umlaut}},
		"backwards":  {KeyFilter{}, pg.Page{Limit: 1, Descending: true}, []AttributeKey{umlaut, id, b, z, root}},
		"workflow":   {KeyFilter{WorkflowName: "refund"}, pg.Page{Limit: 1}, []AttributeKey{{"b", 4, at(12), at(21)}, {"id", 12, at(12), at(23)}}},
		"no runs":    {KeyFilter{WorkflowName: "none"}, pg.Page{Limit: 9}, nil},
		"window":     {KeyFilter{Created: Window{at(4), at(9)}}, pg.Page{Limit: 2}, []AttributeKey{root, z, {"b", 2, at(6), at(9)}, {"id", 6, at(4), at(9)}, umlaut}},
		"both":       {KeyFilter{"order", Window{at(7), at(99)}}, pg.Page{Limit: 2}, []AttributeKey{{"b", 1, at(9), at(9)}, {"id", 5, at(7), at(11)}}},
		"before all": {KeyFilter{Created: Window{at(-9), at(-1)}}, pg.Page{Limit: 2}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []AttributeKey
			p := tt.p
			for {
				keys, next, err := ListAttributeKeys(t.Context(), pool, home, tt.f, p)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, keys...)
				if next == "" {
					break
				}
				if p.Cursor = next; len(keys) != p.Limit {
					t.Fatalf("page of %d is not the last, want %d", len(keys), p.Limit)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
		})
	}
	for _, cursor := range []string{"x", "key:", "1:wrun_1"} {
		_, _, err := ListAttributeKeys(t.Context(), pool, home, KeyFilter{}, pg.Page{Limit: 1, Cursor: cursor})
		wantInvalid(t, err, false)
	}
	_, _, err := ListAttributeKeys(t.Context(), pool, home, KeyFilter{Created: Window{at(1), at(0)}}, pg.Page{Limit: 1})
	wantInvalid(t, err, false)
}
