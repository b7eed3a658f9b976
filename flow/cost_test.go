package flow

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestExpressionsGoThroughTheItemsOfAMap, and are stopped soon beyond that.
func TestExpressionsGoThroughTheItemsOfAMap(t *testing.T) {
	t.Parallel()
	var rows []string
	for i := range 10_000 {
		rows = append(rows, fmt.Sprintf(`{"v":%d,"name":"item %d"}`, i, i))
	}
	text := strings.Repeat("x", 3_000_000)
	input := json.RawMessage(`{"text":"` + text + `","rows":[` + strings.Join(rows, ",") + `]}`)
	for text, want := range map[string]entities.RunStatus{
		`size(input.rows.map(x, x.v))`: entities.RunCompleted,
		`size(input.rows.filter(x, x.v >= 5 && x.name.startsWith('item')).map(x, x.v))`:                                      entities.RunCompleted,
		`input.rows.map(x, x.v * 2 + 0.5).sum() / size(input.rows)`:                                                          entities.RunCompleted,
		`size(input.rows.sortBy(x, -x.v).map(x, x.name).distinct().join(', ').split(', ').filter(n, n.lowerAscii() != 'x'))`: entities.RunCompleted,
		`size(input.text)`:                                                          entities.RunCompleted,
		`math.greatest(pluck(input.rows, 'v'))`:                                     entities.RunCompleted,
		`input.rows.all(a, input.rows.all(b, a != b || a == b))`:                    entities.RunFailed,
		`input.rows.all(a, input.rows == input.rows && input.rows in [input.rows])`: entities.RunFailed,
	} {
		got, err := Trial{Input: input}.Run(parse(t, `{flow: f, steps: {a: {set: "${`+text+`}"}}}`))
		if err != nil || got.Status != want {
			t.Errorf("%s: the run %s: %+v, %v", text, got.Status, got.Error, err)
		}
	}
}

// TestEachItemOfAMapHasAnExpression, and its outputs another one.
func TestEachItemOfAMapHasAnExpression(t *testing.T) {
	t.Parallel()
	input := json.RawMessage(`[` + strings.Repeat(`{"v":2.0},`, 9999) + `{"v":0.5}]`)
	got, err := Trial{Input: input}.Run(parse(t, `flow: f
steps:
  m:
    map: input
    concurrency: 1000
    do: {steps: {a: {set: "${item.v * 2 + 1}"}}, output: "${steps.a.output}"}
output: "${[steps.m.output.sum(), steps.m.output.filter(x, x == 5).size()]}"`))
	if err != nil || string(got.Output) != "[49997,9999]" {
		t.Errorf("got %s, %+v, %v", got.Output, got.Error, err)
	}
}
