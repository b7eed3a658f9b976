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
	input := json.RawMessage(`{"rows":[` + strings.Join(rows, ",") + `]}`)
	for text, want := range map[string]entities.RunStatus{
		`size(input.rows.map(x, x.v))`: entities.RunCompleted,
		`size(input.rows.filter(x, x.v >= 5 && x.name.startsWith('item')).map(x, x.v))`: entities.RunCompleted,
		`input.rows.all(a, input.rows.all(b, a != b || a == b))`:                        entities.RunFailed,
		`input.rows.all(a, input.rows == input.rows && input.rows in [input.rows])`:     entities.RunFailed,
	} {
		got, err := Trial{Input: input}.Run(parse(t, `{flow: f, steps: {a: {set: "${`+text+`}"}}}`))
		if err != nil || got.Status != want {
			t.Errorf("%s: the run %s: %+v, %v", text, got.Status, got.Error, err)
		}
	}
}
