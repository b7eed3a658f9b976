package await_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities/await"
)

func step(id string) await.Ref { return await.Ref{Step: id} }
func wait(id string) await.Ref { return await.Ref{Wait: id} }

// TestCondition checks what is left of a condition when steps a, b and c, the wait t1 and the later wait t2 are open,
// and then some of the steps end.
func TestCondition(t *testing.T) {
	t.Parallel()
	t1 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	t2 := t1.Add(time.Hour)
	facts := await.Facts{
		Step: func(id string) bool { return slices.Contains([]string{"a", "b", "c"}, id) },
		Wait: func(id string) *time.Time { return map[string]*time.Time{"t1": &t1, "t2": &t2}[id] },
	}
	for name, tt := range map[string]struct {
		condition await.Condition
		ended     []string
		want      string // JSON, or "met"
	}{
		"nothing":                      {await.Condition{}, nil, `{"seq":9}`},
		"any":                          {await.Condition{Any: []await.Ref{step("a"), step("b")}}, []string{"c"}, `{"seq":9,"any":["a","b"]}`},
		"any, one ended":               {await.Condition{Any: []await.Ref{step("a"), step("b")}}, []string{"b"}, "met"},
		"any, with a wait":             {await.Condition{Any: []await.Ref{wait("t2"), step("a"), wait("t1")}}, nil, `{"seq":9,"any":["a"],"at":"2026-01-01T00:00:00Z"}`},
		"any, not open":                {await.Condition{Any: []await.Ref{step("a"), step("x")}}, nil, "met"},
		"any, wait not open":           {await.Condition{Any: []await.Ref{step("a"), wait("x")}}, nil, "met"},
		"all":                          {await.Condition{All: [][]await.Ref{{step("a"), step("b")}}}, []string{"a"}, `{"seq":9,"all":[{"steps":["b"]}]}`},
		"all, ended":                   {await.Condition{All: [][]await.Ref{{step("a"), step("b")}}}, []string{"a", "b"}, "met"},
		"all, twice the same":          {await.Condition{All: [][]await.Ref{{step("a"), step("a")}}}, []string{"a"}, "met"},
		"all, some not open":           {await.Condition{All: [][]await.Ref{{step("x"), step("b")}}}, nil, `{"seq":9,"all":[{"steps":["b"]}]}`},
		"all, none open":               {await.Condition{All: [][]await.Ref{{step("x"), wait("y")}}}, nil, "met"},
		"all, with waits":              {await.Condition{All: [][]await.Ref{{wait("t1"), step("b"), wait("t2")}}}, nil, `{"seq":9,"all":[{"steps":["b"],"at":"2026-01-01T01:00:00Z"}]}`},
		"all, only waits left":         {await.Condition{All: [][]await.Ref{{wait("t1"), step("b"), wait("t2")}}}, []string{"b"}, `{"seq":9,"at":"2026-01-01T01:00:00Z"}`},
		"all, only waits":              {await.Condition{All: [][]await.Ref{{wait("t1"), wait("t2")}}}, nil, `{"seq":9,"at":"2026-01-01T01:00:00Z"}`},
		"two lists":                    {await.Condition{All: [][]await.Ref{{step("a"), step("b")}, {step("c")}}}, []string{"c"}, "met"},
		"two lists, a step in both":    {await.Condition{All: [][]await.Ref{{step("a"), step("b")}, {step("a"), step("c")}}}, []string{"a"}, `{"seq":9,"all":[{"steps":["b"]},{"steps":["c"]}]}`},
		"a timeout, or all":            {await.Condition{Any: []await.Ref{wait("t1")}, All: [][]await.Ref{{step("a"), step("b")}}}, []string{"b"}, `{"seq":9,"all":[{"steps":["a"]}],"at":"2026-01-01T00:00:00Z"}`},
		"a list that is later than it": {await.Condition{Any: []await.Ref{wait("t1")}, All: [][]await.Ref{{step("a"), wait("t2")}}}, []string{"a"}, `{"seq":9,"at":"2026-01-01T00:00:00Z"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pending, met := tt.condition.Pending(facts, 9)
			for _, id := range tt.ended {
				if !met {
					pending, met = pending.StepEnded(id, 9)
				}
			}
			got := "met"
			if !met {
				text, err := json.Marshal(pending)
				if err != nil {
					t.Fatal(err)
				}
				got = string(text)
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestPendingIsNotChanged: what another append has in its cache stays as it is.
func TestPendingIsNotChanged(t *testing.T) {
	t.Parallel()
	open := await.Facts{Step: func(string) bool { return true }}
	pending, _ := await.Condition{All: [][]await.Ref{{step("a"), step("b"), step("c")}, {step("b"), step("d")}}}.Pending(open, 1)
	before, _ := json.Marshal(pending)
	one, _ := pending.StepEnded("a", 2)
	one.StepEnded("b", 3)
	pending.StepEnded("d", 2)
	if after, _ := json.Marshal(pending); string(after) != string(before) {
		t.Errorf("got %s, want %s", after, before)
	}
}
