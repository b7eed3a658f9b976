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

// TestTerms checks what is left of terms when steps a, b and c, the wait t1 and the later wait t2 are open, and then
// some of the steps end.
func TestTerms(t *testing.T) {
	t.Parallel()
	t1 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	t2 := t1.Add(time.Hour)
	facts := await.Facts{
		Step: func(id string) bool { return slices.Contains([]string{"a", "b", "c"}, id) },
		Wait: func(id string) *time.Time { return map[string]*time.Time{"t1": &t1, "t2": &t2}[id] },
	}
	for name, tt := range map[string]struct {
		terms await.Terms
		ended []string
		want  string // JSON, or "holds"
	}{
		"nothing":                      {await.Terms{}, nil, `{"seq":9}`},
		"any":                          {await.Terms{Any: []await.Ref{step("a"), step("b")}}, []string{"c"}, `{"seq":9,"any":["a","b"]}`},
		"any, one ended":               {await.Terms{Any: []await.Ref{step("a"), step("b")}}, []string{"b"}, "holds"},
		"any, with a wait":             {await.Terms{Any: []await.Ref{wait("t2"), step("a"), wait("t1")}}, nil, `{"seq":9,"any":["a"],"at":"2026-01-01T00:00:00Z"}`},
		"any, not open":                {await.Terms{Any: []await.Ref{step("a"), step("x")}}, nil, "holds"},
		"any, wait not open":           {await.Terms{Any: []await.Ref{step("a"), wait("x")}}, nil, "holds"},
		"all":                          {await.Terms{All: [][]await.Ref{{step("a"), step("b")}}}, []string{"a"}, `{"seq":9,"all":[{"steps":["b"]}]}`},
		"all, ended":                   {await.Terms{All: [][]await.Ref{{step("a"), step("b")}}}, []string{"a", "b"}, "holds"},
		"all, twice the same":          {await.Terms{All: [][]await.Ref{{step("a"), step("a")}}}, []string{"a"}, "holds"},
		"all, some not open":           {await.Terms{All: [][]await.Ref{{step("x"), step("b")}}}, nil, `{"seq":9,"all":[{"steps":["b"]}]}`},
		"all, none open":               {await.Terms{All: [][]await.Ref{{step("x"), wait("y")}}}, nil, "holds"},
		"all, with waits":              {await.Terms{All: [][]await.Ref{{wait("t1"), step("b"), wait("t2")}}}, nil, `{"seq":9,"all":[{"steps":["b"],"at":"2026-01-01T01:00:00Z"}]}`},
		"all, only waits left":         {await.Terms{All: [][]await.Ref{{wait("t1"), step("b"), wait("t2")}}}, []string{"b"}, `{"seq":9,"at":"2026-01-01T01:00:00Z"}`},
		"all, only waits":              {await.Terms{All: [][]await.Ref{{wait("t1"), wait("t2")}}}, nil, `{"seq":9,"at":"2026-01-01T01:00:00Z"}`},
		"two lists":                    {await.Terms{All: [][]await.Ref{{step("a"), step("b")}, {step("c")}}}, []string{"c"}, "holds"},
		"two lists, a step in both":    {await.Terms{All: [][]await.Ref{{step("a"), step("b")}, {step("a"), step("c")}}}, []string{"a"}, `{"seq":9,"all":[{"steps":["b"]},{"steps":["c"]}]}`},
		"a timeout, or all":            {await.Terms{Any: []await.Ref{wait("t1")}, All: [][]await.Ref{{step("a"), step("b")}}}, []string{"b"}, `{"seq":9,"all":[{"steps":["a"]}],"at":"2026-01-01T00:00:00Z"}`},
		"a list that is later than it": {await.Terms{Any: []await.Ref{wait("t1")}, All: [][]await.Ref{{step("a"), wait("t2")}}}, []string{"a"}, `{"seq":9,"at":"2026-01-01T00:00:00Z"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, holds := tt.terms.Open(facts, 9)
			for _, id := range tt.ended {
				if !holds {
					set, holds = set.Ended(id, 9)
				}
			}
			got := "holds"
			if !holds {
				text, err := json.Marshal(set)
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

// TestSetsAreNotChanged: a set that another append has in its cache stays as it is.
func TestSetsAreNotChanged(t *testing.T) {
	t.Parallel()
	open := await.Facts{Step: func(string) bool { return true }}
	set, _ := await.Terms{All: [][]await.Ref{{step("a"), step("b"), step("c")}, {step("b"), step("d")}}}.Open(open, 1)
	before, _ := json.Marshal(set)
	one, _ := set.Ended("a", 2)
	one.Ended("b", 3)
	set.Ended("d", 2)
	if after, _ := json.Marshal(set); string(after) != string(before) {
		t.Errorf("got %s, want %s", after, before)
	}
}
