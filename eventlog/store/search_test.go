package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestSearchFindsValuesOfTheNamesInUse: among more names than a search probes, it looks in those that the newest runs
// have, wherever they are in the alphabet, and never in those of the SDK. It says how many it has left out.
func TestSearchFindsValuesOfTheNamesInUse(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	run := func(i int, project entities.Project, attributes map[string]string) entities.Run {
		at := day.Add(time.Duration(i) * time.Second)
		return entities.Run{
			ID: entities.RunID(fmt.Sprintf("wrun_%03d", i)), Project: project, DeploymentID: "dpl_1", SpecVersion: 3,
			WorkflowName: "w", Status: entities.RunRunning, LastSeq: 1, CreatedAt: at, UpdatedAt: at, Attributes: attributes,
		}
	}
	var runs []entities.Run
	for i := range 3 { // old runs with 120 names
		attributes := map[string]string{}
		for n := range 40 {
			attributes[fmt.Sprintf("name%03d", i*40+n)] = fmt.Sprint("old", i*40+n)
		}
		runs = append(runs, run(i, home, attributes))
	}
	for i := 3; i < recentRuns+3; i++ {
		runs = append(runs, run(i, home, map[string]string{"zone": "12345", "order": fmt.Sprint(12000 + i), "$trigger": "12345"}))
	}
	runs = append(runs, run(900, home, map[string]string{"order": "12345"}), run(901, stranger, map[string]string{"theirs": "12345"}))
	runs[1].UniqueKey = "customer-7"
	insertRuns(t, pool, runs)
	in := Searched{Searched: probedNames, Of: 122}
	for text, want := range map[string]Found{
		"12345":      {Attributes: []string{"order", "zone"}, InAttributes: in},
		"12003":      {Attributes: []string{"order"}, InAttributes: in},
		"old0":       {Attributes: []string{"name000"}, InAttributes: in},
		"old119":     {Attributes: []string{}, InAttributes: in}, // of no name that is probed
		"customer-7": {Key: true, Attributes: []string{}, InAttributes: in},
	} {
		got, err := Search(t.Context(), pool, home, text)
		if err != nil {
			t.Fatal(err)
		}
		want.InWorkflows, want.Workflows = Searched{Searched: 1, Of: 1}, []string{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	for _, text := range []string{"", strings.Repeat("x", 1025)} {
		_, err := Search(t.Context(), pool, home, text)
		wantInvalid(t, err, false)
	}
}

func TestWorkflowsAreFoundByTheirTitles(t *testing.T) {
	t.Parallel()
	const place, again, other = "workflow//./workflows/order//placeOrder", "workflow//./old//placeOrder", "workflow//./workflows/order//replaceOrder"
	known := []string{again, other, place, "order", "placeOrderNow"}
	for text, want := range map[string][]string{
		"placeOrder": {again, place, "placeOrderNow", other},
		"PLACEORDER": {again, place, "placeOrderNow", other},
		place:        {place},
		"order":      {"order", again, other, place, "placeOrderNow"},
		"workflows":  {}, // only part of their modules
		"shop":       {},
	} {
		if diff := cmp.Diff(want, titled(known, text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	many := make([]string, 0, maxFound+1)
	for i := range maxFound + 1 {
		many = append(many, fmt.Sprint("order", i))
	}
	if got := titled(many, "order"); len(got) != maxFound {
		t.Errorf("%d workflows found, want %d", len(got), maxFound)
	}
}

// TestSearchReadsALimitedNumberOfNames: a project that has made a name for each of its runs pays for 1,000 of them at most.
func TestSearchReadsALimitedNumberOfNames(t *testing.T) {
	t.Parallel()
	m := &meter{Pool: testdb.Pool(t)}
	if _, err := m.Exec(t.Context(), `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, attributes, last_seq, created_at, updated_at)
		SELECT 'wrun_' || i, 'home', 'dpl_1', 'w' || i, 'running', 3,
			jsonb_build_object('name' || i, 'x', '$sdk' || i, 'x', 'order', i::text), 1, at, at
		FROM (SELECT i, $1::timestamptz + i * interval '1 s' AS at FROM generate_series(1, 30000) i) made`, day); err != nil {
		t.Fatal(err)
	}
	copyAttributes(t, m.Pool)
	if _, err := m.Exec(t.Context(), `ANALYZE runs; ANALYZE run_attributes`); err != nil {
		t.Fatal(err)
	}
	found, err := Search(t.Context(), m, home, "17")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"order"}, found.Attributes); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if !found.InAttributes.AtLeast || found.InAttributes.Searched != probedNames || found.InWorkflows != (Searched{1000, 1000, true}) {
		t.Errorf("searched %+v and %+v", found.InAttributes, found.InWorkflows)
	}
	for how, p := range map[string]plan{"for these arguments": m.explain(t), "for all arguments": m.explainGeneric(t)} {
		if scans := p.scans(); len(scans) > 0 {
			t.Errorf("%s: %v", how, scans)
		}
		if p.blocks() > 7000 { // 1,000 steps of three blocks, 500 runs, 100 probes
			t.Errorf("%s: %d blocks touched", how, p.blocks())
		}
	}
}
