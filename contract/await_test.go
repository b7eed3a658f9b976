package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/await"
)

func TestAwaitIsParsed(t *testing.T) {
	t.Parallel()
	many, err := json.Marshal(strings.Split(strings.Repeat("step:a ", MaxAwaited)+"step:a", " "))
	if err != nil {
		t.Fatal(err)
	}
	for answer, tt := range map[string]struct {
		want *await.Condition
		err  string
	}{
		`{}`:                                      {nil, ""},
		`{"await":null}`:                          {nil, ""},
		`{"await":{}}`:                            {&await.Condition{}, ""},
		`{"await":{"any":[],"all":[]}}`:           {&await.Condition{}, ""},
		`{"await":{"any":["step:a:b"]}}`:          {&await.Condition{Any: []await.Ref{{Step: "a:b"}}}, ""},
		`{"await":{"all":[["wait:t"]]}}`:          {&await.Condition{All: [][]await.Ref{{{Wait: "t"}}}}, ""},
		`{"await":{"all":[["wait:t"],[]]}}`:       {nil, `list 1 of "all" is empty`},
		`{"await":{"any":["a"]}}`:                 {nil, `"a" is neither "step:ID" nor "wait:ID"`},
		`{"await":{"any":["hook:a"]}}`:            {nil, `"hook:a" is neither`},
		`{"await":{"any":["step:"]}}`:             {nil, `the ID of a step is missing`},
		`{"await":{"all":[["wait:/"]]}}`:          {nil, `the ID of a wait "/" has characters`},
		`{"await":{"some":[]}}`:                   {nil, `some`},
		fmt.Sprintf(`{"await":{"any":%s}}`, many): {nil, `1001 references; the limit is 1000`},
	} {
		p, err := orders.Plan([]byte(answer))
		if (err != nil) != (tt.err != "") || err != nil && (!strings.Contains(err.Error(), tt.err) || !errors.Is(err, entities.ErrInvalid)) {
			t.Errorf("%.60s: got error %v, want %q", answer, err, tt.err)
		}
		if diff := cmp.Diff(tt.want, p.Await, cmp.Transformer("empty", func(s []await.Ref) []await.Ref { return append([]await.Ref{}, s...) })); diff != "" {
			t.Errorf("%.60s: %s", answer, diff)
		}
	}
}
