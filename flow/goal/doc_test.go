package goal

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/flow"
)

// TestTheExampleOfTheDocument plans and runs the first catalog in docs/goals.md as the page says.
func TestTheExampleOfTheDocument(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/goals.md")
	if err != nil {
		t.Fatal(err)
	}
	document := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(string(page))
	if document == nil {
		t.Fatal("the page has no example")
	}
	for country, rates := range map[string]string{
		"DE": `[{"carrier":"express","quotes":[5]},{"carrier":"post","quotes":[3]}]`, "FR": `[{"carrier":"express","quotes":[5]}]`,
	} {
		got := runPlan(t, document[1], Ask{Want: []string{"label"}, Have: []string{"order"}},
			`{"have":{"order":{"country":"`+country+`"}}}`, map[string]flow.Result{
				"pack": gives(`{"parcels":["a"]}`), "rate-express[0]": gives("5"), "rate-post[0]": gives("3"),
				"book": gives(`{"label":"L"}`),
			})
		if got.Status != entities.RunCompleted || string(got.Output) != `{"label":"L"}` {
			t.Errorf("%s: %s, %s, %v", country, got.Status, got.Output, got.Error)
		}
		calls := callsOf(got)
		if last := calls[len(calls)-1]; !strings.Contains(last, `"rate":`+rates+`,"insured":false,"account":"A-7"`) {
			t.Errorf("%s: %s, want the rates %s", country, last, rates)
		}
	}
	p, err := parse(t, document[1]).Plan(Ask{Want: []string{"label"}}, NewBudget())
	if err != nil || !strings.Contains(string(page), strings.Join(p.Preview().Missing[0].Chain, " needs ")) {
		t.Errorf("the page does not have the chain of %v (%v)", p.Preview().Missing, err)
	}
}

// FuzzCatalog: no catalog makes the parser or the planning of what its first step gives panic.
func FuzzCatalog(f *testing.F) {
	f.Add([]byte("catalog: c\ndeployment: d\nattributes: {a: {type: string}}\nsteps: {s: {call: s, takes: {b: {}}, gives: {a: {}}}}"))
	f.Add([]byte("catalog: c\nsteps: {s: {set: '${a}', takes: {a: {each: true, collect: all}, b: {const: 1}}, gives: {c: {from: result}}}}"))
	f.Fuzz(func(_ *testing.T, document []byte) {
		c, err := Parse(document)
		if err != nil {
			return
		}
		if p, err := c.Plan(Ask{Want: []string{c.steps[0].id}}, NewBudget()); err == nil {
			p.Preview()
		}
	})
}
