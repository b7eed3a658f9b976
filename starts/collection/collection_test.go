package collection

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

var noon = time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)

// clock returns a time as it is after noon.
func clock(t time.Time) string { return t.Sub(noon).String() }

func debounce(t *testing.T, quiet, most time.Duration, keep Keep) Rule {
	t.Helper()
	r, err := NewDebounce("k", quiet, most, keep)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func batch(t *testing.T, size int, bytes int64) Rule {
	t.Helper()
	r, err := NewBatch("k", size, time.Minute, bytes)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func start(input string) Start {
	return Start{Workflow: "w", Deployment: "on " + input, Input: []byte(input)}
}

func TestRules(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		make  func() (Rule, error)
		wrong string // empty if the rule is right
	}{
		"debounce":         {func() (Rule, error) { return NewDebounce("", time.Second, 0, "") }, ""},
		"longest debounce": {func() (Rule, error) { return NewDebounce("k", maxWait, maxWait, KeepAll) }, ""},
		"quiet too short":  {func() (Rule, error) { return NewDebounce("k", time.Second-1, 0, "") }, "quiet"},
		"quiet too long":   {func() (Rule, error) { return NewDebounce("k", maxWait+1, 0, "") }, "quiet"},
		"max below quiet":  {func() (Rule, error) { return NewDebounce("k", time.Minute, time.Second, "") }, "max"},
		"max too long":     {func() (Rule, error) { return NewDebounce("k", time.Minute, maxWait+1, "") }, "max"},
		"keep":             {func() (Rule, error) { return NewDebounce("k", time.Minute, 0, "some") }, "keep"},
		"key":              {func() (Rule, error) { return NewDebounce("a\x00", time.Minute, 0, "") }, "key"},
		"batch":            {func() (Rule, error) { return NewBatch("", 2, time.Second, 0) }, ""},
		"largest batch":    {func() (Rule, error) { return NewBatch("k", MaxSize, maxWait, MaxBytes) }, ""},
		"size of one":      {func() (Rule, error) { return NewBatch("k", 1, time.Second, 0) }, "size"},
		"size too large":   {func() (Rule, error) { return NewBatch("k", MaxSize+1, time.Second, 0) }, "size"},
		"wait is missing":  {func() (Rule, error) { return NewBatch("k", 2, 0, 0) }, "wait"},
		"bytes too many":   {func() (Rule, error) { return NewBatch("k", 2, time.Second, MaxBytes+1) }, "bytes"},
		"bytes negative":   {func() (Rule, error) { return NewBatch("k", 2, time.Second, -1) }, "bytes"},
	} {
		_, err := tt.make()
		if tt.wrong == "" && err != nil || tt.wrong != "" && (!errors.Is(err, entities.ErrInvalid) || !strings.Contains(err.Error(), tt.wrong)) {
			t.Errorf("%s: got %v, want one about %q", name, err, tt.wrong)
		}
	}
}

func TestDueTimeMovesUpToTheMaximum(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rule Rule
		want string // when the run is due after the first start and after one at each of 5, 14, 22 and 26 s
	}{
		"debounce":             {debounce(t, 10*time.Second, time.Minute, KeepLast), "10s 15s 24s 32s 36s"},
		"debounce to its max":  {debounce(t, 10*time.Second, 25*time.Second, KeepLast), "10s 15s 24s 25s 25s"},
		"first, and its max":   {debounce(t, 10*time.Second, 25*time.Second, KeepFirst), "10s 15s 24s 25s 25s"},
		"all, and its max":     {debounce(t, 10*time.Second, 25*time.Second, KeepAll), "10s 15s 24s 25s 25s"},
		"batch does not move":  {batch(t, 100, 0), "1m0s 1m0s 1m0s 1m0s 1m0s"},
		"quiet equals maximum": {debounce(t, 10*time.Second, 10*time.Second, KeepLast), "10s 10s 10s 10s 10s"},
	} {
		c, err := Open("wrun_1", "p", tt.rule, start("1"), noon)
		if err != nil {
			t.Fatal(err)
		}
		due := []string{clock(c.DueAt)}
		for _, s := range []time.Duration{5, 14, 22, 26} {
			var next Next
			if c, next, err = c.Add(start("1"), noon.Add(s*time.Second)); err != nil || next != Collects {
				t.Fatalf("%s: got %s, %v", name, next, err)
			}
			due = append(due, clock(c.DueAt))
		}
		if got := strings.Join(due, " "); got != tt.want {
			t.Errorf("%s: due at %s, want %s", name, got, tt.want)
		}
		if c.Count != 5 || clock(c.FirstAt) != "0s" || clock(c.LastAt) != "26s" {
			t.Errorf("%s: %d starts from %s to %s", name, c.Count, clock(c.FirstAt), clock(c.LastAt))
		}
	}
}

func TestKeptStartSaysAllAboutTheRun(t *testing.T) {
	t.Parallel()
	for keep, want := range map[Keep][2]string{ // the input and the deployment
		KeepLast: {`"c"`, `on "c"`}, KeepFirst: {`"a"`, `on "a"`}, KeepAll: {`["a","b","c"]`, `on "a"`},
	} {
		c, err := Open("wrun_1", "p", debounce(t, time.Second, 0, keep), start(`"a"`), noon)
		for _, input := range []string{`"b"`, `"c"`} {
			if err == nil {
				c, _, err = c.Add(start(input), noon)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		items := [][]byte{[]byte(`"a"`), []byte(`"b"`), []byte(`"c"`)}
		input := string(c.RunInput(items))
		if got := [2]string{input, c.Deployment}; got != want {
			t.Errorf("%s: got %q, want %q", keep, got, want)
		}
		if c.Bytes != int64(len(input)) {
			t.Errorf("%s: %d bytes are counted for %s", keep, c.Bytes, input)
		}
	}
}

func TestListsAreFull(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rule   Rule
		inputs []string
		want   Next // with the last input
	}{
		"second of three":       {batch(t, 3, 0), []string{"1", "2"}, Collects},
		"third of three":        {batch(t, 3, 0), []string{"1", "2", "3"}, Fills},
		"exactly the bytes":     {batch(t, 9, 7), []string{"1", "222"}, Collects}, // [1,222]
		"a byte too many":       {batch(t, 9, 6), []string{"1", "222"}, Overflows},
		"too many and the last": {batch(t, 2, 6), []string{"1", "222"}, Overflows},
		"a missing input":       {batch(t, 9, 8), []string{"1", ""}, Collects}, // [1,null]
		"a missing input more":  {batch(t, 9, 7), []string{"1", ""}, Overflows},
		"debounce is no list":   {debounce(t, time.Second, 0, KeepLast), make([]string, 2*MaxSize), Collects},
		"debounce, all of them": {debounce(t, time.Second, 0, KeepAll), make([]string, MaxSize), Fills},
	} {
		c, err := Open("wrun_1", "p", tt.rule, start(tt.inputs[0]), noon)
		var next Next
		for _, input := range tt.inputs[1:] {
			if err == nil {
				c, next, err = c.Add(start(input), noon)
			}
		}
		if err != nil || next != tt.want {
			t.Errorf("%s: got %q, %v, want %q", name, next, err, tt.want)
		}
	}
}

func TestInputThatIsTooLongIsRefused(t *testing.T) {
	t.Parallel()
	long := start(strings.Repeat("1", MaxBytes+1))
	for name, tt := range map[string]struct {
		rule Rule
		s    Start
	}{
		"first": {debounce(t, time.Second, 0, KeepFirst), long},
		"last":  {debounce(t, time.Second, 0, KeepLast), long},
		"all":   {debounce(t, time.Second, 0, KeepAll), start(strings.Repeat("1", MaxBytes-1))}, // and brackets
		"batch": {batch(t, 2, 10), start("123456789")},
	} {
		if _, err := Open("wrun_1", "p", tt.rule, tt.s, noon); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("%s, opening: got %v", name, err)
		}
		c, err := Open("wrun_1", "p", tt.rule, start("1"), noon)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = c.Add(tt.s, noon); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("%s, adding: got %v", name, err)
		}
	}
}
