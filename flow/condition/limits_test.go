package condition

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// nested returns a condition that binds a variable by each step, to a value made of the previous variable.
func nested(depth int, first, step, last string) string {
	text, previous := "", first
	for i := range depth {
		name := fmt.Sprintf("v%d", i)
		text += fmt.Sprintf("[%s].all(%s, ", strings.ReplaceAll(step, "X", previous), name)
		previous = name
	}
	return text + strings.ReplaceAll(last, "X", previous) + strings.Repeat(")", depth)
}

// repeated returns a condition that has the term as often as fits.
func repeated(term string) string {
	return strings.Repeat(term+"&&", MaxLength/(len(term)+2)-1) + term
}

var (
	manyNumbers = `{"l": [` + strings.Repeat("1,", 99_999) + `1], "s": "x"}`
	longText    = `{"s": "` + strings.Repeat("a", 1<<20-100) + `", "m": {"a": 1}, "l": [` + strings.Repeat("1,", 29) + `1]}`
	manyKeys    = func() string {
		var b strings.Builder
		for i := range 50_000 {
			fmt.Fprintf(&b, `"%d":1,`, i)
		}
		return `{"m": {` + b.String() + `"x": 1}}`
	}()
)

// attacks are conditions that would take seconds to hours, or gigabytes, without the limits.
var attacks = []struct{ name, text, data string }{
	{"loops", `data.l.all(a, data.l.all(b, data.l.all(c, a + b + c >= 0.0)))`, manyNumbers},
	{"search in loop", `data.l.all(a, 2.0 in data.l || true)`, manyNumbers},
	{"comparisons in loop", `data.l.all(a, data.l == data.l)`, manyNumbers},
	{"comparisons of maps", `[1,2,3,4,5,6,7,8,9].all(a, data.m == data.m)`, manyKeys},
	{"comparisons", repeated(`data==data`), manyNumbers},
	{"negated comparisons", repeated(`!(data!=data)`), manyNumbers},
	{"long texts", repeated(`data.s+"a"!=data.s`), longText},
	{"texts doubled", nested(5, "data.s", "X+X", `size(X) > 0`), longText},
	{"lists doubled", nested(5, "data.l", "X+X", `size(X) > 0`), manyNumbers},
	{"sums of lists", nested(5, "data.l", "X+X+X+X+X+X+X+X+X+X", `X.all(x, x > 0.0)`), longText},
	{"lists nested", nested(5, "data.l", "[X,X,X,X,X,X,X,X,X,X]", `X == X`), manyNumbers},
	{"maps nested", nested(4, "data.l", `{"a":X,"b":X,"c":X,"d":X,"e":X,"f":X}`, `X == X`), manyNumbers},
	{"search in nested lists", nested(4, "data.l", "[X,X,X,X,X,X,X,X,X,X]", `X in [X]`), manyNumbers},
	{"lists of lists", `[data.l.map(x, data)].all(y, y == y)`, manyNumbers},
	{"sizes", `data.l.all(x, data.l.all(y, size(data.s) > 0))`, longText},
	{"keys", `data.l.all(x, data.l.all(y, data.l.all(z, !(data.s in data.m))))`, longText},
	{"conversions", `data.l.all(x, data.l.all(y, string(data.s) != ""))`, longText},
	{"errors", `data.l.all(x, data.l.all(y, duration(data.s) > duration("1s") || true))`, longText},
	{"looking for keys", `data.l.all(x, data.l.all(y, data.l.all(z, data.l.all(u, data.m[data.s] == 1 || true))))`, longText},
	{"texts contained", `data.l.all(x, data.s.contains(data.s))`, longText},
	{"matches", `data.l.all(x, data.l.all(y, data.s.matches("(a|b|ab)*c")))`, longText},
	{"matches of short texts", `data.l.all(x, matches("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "(a?){40}b") || true)`, manyNumbers},
	{"sets", `data.l.all(x, data.l.all(y, data.l.all(z, data.l.all(u, !(data.s in ["a", "b"])))))`, longText},
	{"time zones", `data.l.all(x, data.l.all(y, timestamp(0).getHours("No/Zone") >= 0 || true))`, manyNumbers},
	{"replacements", `data.s.replace("a", data.s) != ""`, longText},
	{"replacements of nothing", `data.s.replace("", data.s) != ""`, longText},
	{"limited replacements", `data.l.all(x, data.s.replace("a", data.s, 9) != "")`, longText},
	{"joins", `data.l.map(x, data.s).join(data.s) != ""`, longText},
	{"joins with a long text", `data.l.map(x, "").join("` + strings.Repeat("-", 3000) + `") != ""`, manyNumbers},
	{"formats", `[data.l, data.l].all(x, "%s%s%s".format([x, x, x]) != "")`, manyNumbers},
	{"formats of nested lists", nested(4, "data.l", "[X,X,X,X,X,X,X,X,X,X]", `"%s".format([X]) != ""`), manyNumbers},
	{"formats of long numbers", `data.l.all(a, data.l.all(x, "%.99f%.99f".format([1e300, 1e300]) != ""))`, manyNumbers},
	{"lists of long numbers", `data.l.all(x, "%s".format([data.l.map(x, 1e300)]) != "")`, manyNumbers},
	{"formats of characters", `data.l.all(x, data.s.split("").map(c, "%x").join().format(data.l) != "")`, longText},
	{"quotes", `data.l.all(x, strings.quote(data.s) != "")`, longText},
	{"splits", `data.l.all(x, size(data.s.split("")) > 0)`, longText},
	{"places", `data.s.indexOf(data.s + "b") == 0 || data.s.indexOf("b" + data.s) == -1 && data.s.lastIndexOf("ba") == -2`, longText},
	{"ranges", `data.l.all(x, size(lists.range(90000)) > 0)`, longText},
	{"long ranges", `size(lists.range(9223372036854775807)) > 0`, `{}`},
	{"flattened lists", nested(6, "data.l", "[X,X,X,X,X,X,X,X,X,X]", `size(X.flatten(9)) > 0`), longText},
	{"sorts", `[1,2,3,4,5].all(x, size(data.l.sort()) > 0)`, manyNumbers},
	{"sorts of long texts", `size(data.l.map(x, data.s).sort()) > 0`, longText},
	{"sorts by long texts", `size(data.l.sortBy(x, data.s)) > 0`, longText},
	{"distinct lists", `size(lists.range(9000).map(x, [x]).distinct()) > 0`, `{}`},
	{"distinct numbers", `data.l.all(x, size(data.l.distinct()) > 0)`, manyNumbers},
	{"lists of all", `data.l.hasAll(data.l.map(x, 2))`, manyNumbers},
	{"lists of any", `data.l.hasAny(data.l.map(x, 2))`, manyNumbers},
	{"lists of only", `data.l.hasOnly(data.l.map(x, 2))`, manyNumbers},
	{"equal sets", `lists.range(9000).hasExactly(lists.range(9000).reverse())`, `{}`},
	{"sums in loop", `data.l.all(x, data.l.sum() > 0)`, manyNumbers},
	{"greatest in loop", `data.l.all(x, math.greatest(data.l) > 0)`, manyNumbers},
	{"fields in loop", `data.l.all(x, size(pluck(data.l, "x")) > 0)`, `{"l": [` + strings.Repeat("null,", 50_000) + `null]}`},
	{"slices", `data.l.all(x, size(data.l.slice(0, 90000)) > 0)`, manyNumbers},
	{"reversals", `data.l.all(x, size(data.l.reverse()) > 0)`, manyNumbers},
	{"base64", `data.l.all(x, base64.encode(bytes(data.s)) != "")`, longText},
	{"optional values", repeated(`optional.of(data)==optional.of(data)`), manyNumbers},
	{"quotients", `data.l.all(a, data.l.all(b, 9223372036854775807 / dyn(7) > 0 || true))`, manyNumbers},
	{"sums of far numbers", `[1,2,3].map(x, data.l.map(x, 1e300).sum()) != []`, manyNumbers},
	{"products of far numbers", `data.l.all(a, data.l.all(b, 1e300 * dyn(1e-284) > 0))`, manyNumbers},
	{"folding", `data.l.map(x, data.l.map(y, data.l.map(z, data.s + "x"))) != []`, longText},
}

// TestAttacksAreStopped evaluates each attack as a signal would. The limit of the cost must stop it, not the clock.
func TestAttacksAreStopped(t *testing.T) {
	for _, attack := range attacks {
		t.Run(attack.name, func(t *testing.T) {
			c := New(time.Now)
			if len(attack.text) > MaxLength {
				t.Fatalf("%d bytes", len(attack.text))
			}
			if err := c.Check(t.Context(), "attacker", attack.text); err != nil {
				t.Fatal(err)
			}
			v := variables(t, attack.data)
			start, before := time.Now(), allocated()
			got, err := c.Matches(t.Context(), attack.text, v)
			took, memory := time.Since(start), allocated()-before
			t.Logf("%s, %d MiB: %v, %v", took, memory>>20, got, err)
			if got || !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "cost limit") {
				t.Errorf("got %v, %v; want the cost limit", got, err)
			}
			if memory > 64<<20 {
				t.Errorf("allocated %d MiB", memory>>20)
			}
		})
	}
}

// allocated returns the bytes that were allocated since the start of the process.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// TestLargePatternsAreRejected: repeats multiply, so a short pattern can have millions of instructions.
func TestLargePatternsAreRejected(t *testing.T) {
	t.Parallel()
	c := New(time.Now)
	for _, pattern := range []string{
		strings.Repeat("(?:[ab]?){1000}", 265), // 2.6 s for a text of 400 characters
		`(?:[ab]?){1000}`, `((a{10}){10}){10}`, `a{501}`, `a{500,}`, strings.Repeat("a", 501),
		`(?i)` + strings.Repeat(`\pL`, 100), strings.Repeat(`(a|b)`, 300),
	} {
		start := time.Now()
		wantRefused(t, c, `data.x.matches("`+strings.ReplaceAll(pattern, `\`, `\\`)+`")`, `the patterns are too large`)
		if took := time.Since(start); took > time.Second {
			t.Errorf("%.30s: took %s", pattern, took)
		}
	}
	wantRefused(t, c, repeated(`data.x.matches("a{20}")`), `the patterns are too large`)
	wantRefused(t, c, repeated(`matches(data.x, "a{20}")`), `the patterns are too large`)
	for _, pattern := range []string{
		`^[0-9]{1,100}$`, `^[\\w.+-]+@[\\w-]+\\.[a-z]{2,24}$`, `(?i)^(visa|mastercard|amex)$`, `^\\pL+$`,
		`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`,
	} {
		if err := c.Check(t.Context(), "p", `data.x.matches("`+pattern+`")`); err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

// TestOrdinaryConditionsStayWithinLimits: conditions on large signals that somebody may need.
func TestOrdinaryConditionsStayWithinLimits(t *testing.T) {
	t.Parallel()
	c := New(time.Now)
	var items strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&items, `{"sku": "sku-%d", "n": %d, "tags": ["a", "b"]},`, i, i)
	}
	data := `{"items": [` + items.String() + `{"sku": "last", "n": 1, "tags": []}], "mail": "a.customer@shop.example", "a": [1], "b": [2]}`
	for _, text := range []string{
		`data.items.exists(i, i.sku == "last" && i.n == 1)`,
		`data.items.filter(i, i.n > 4990).size() > 5`,
		`data.items.map(i, i.n).exists(n, n == 77)`,
		`data.mail.matches("^[\\w.+-]+@[\\w-]+\\.[a-z]{2,24}$")`,
		`(data.a + data.b) == [1, 2] && 2 in data.a + data.b`,
		`data.mail + "!" == "a.customer@shop.example!"`,
		`data.items[5000] == {"sku": "last", "n": 1, "tags": []}`,
		`data != null && data.mail != "" && data.items != []`,
	} {
		if got, err := c.Matches(t.Context(), text, variables(t, data)); !got || err != nil {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
}

// TestEvaluationEndsWithItsContext: a server that stops does not wait for conditions.
func TestEvaluationEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := New(time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Matches(ctx, `data.l.all(a, data.l.all(b, a + b > 0.0))`, variables(t, manyNumbers)); err == nil {
		t.Error("evaluated a condition after the end of its context")
	}
	release, err := c.Acquire(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := c.Acquire(ctx, "p"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v for work of a cancelled context", err)
	}
	if other, err := c.Acquire(t.Context(), "q"); err != nil {
		t.Errorf("another project waits: %v", err)
	} else {
		other()
	}
}

func TestOneEvaluationPerProject(t *testing.T) {
	t.Parallel()
	c := New(time.Now)
	var busy, most atomic.Int64
	var racers sync.WaitGroup
	for range 16 {
		racers.Go(func() {
			for range 20 {
				release, err := c.Acquire(t.Context(), entities.Project("p"))
				if err != nil {
					t.Error(err)
					return
				}
				most.Store(max(most.Load(), busy.Add(1)))
				runtime.Gosched()
				busy.Add(-1)
				release()
			}
		})
	}
	racers.Wait()
	if most.Load() != 1 || c.projects.Free() != math.MaxInt64 {
		t.Errorf("%d at once; %d projects were not released", most.Load(), math.MaxInt64-c.projects.Free())
	}
}

func TestProgramCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := New(time.Now)
	const first = `data == 0.0`
	for i := range maxPrograms + 50 {
		for _, text := range []string{fmt.Sprintf("data == %d.0", i), first} { // first stays in use
			if got, err := c.Matches(t.Context(), text, variables(t, fmt.Sprint(i))); err != nil || got != (text != first || i == 0) {
				t.Fatalf("%s of %d: got %v, %v", text, i, got, err)
			}
		}
	}
	cached, _ := c.programs.Contents()
	if got := len(cached); got != maxPrograms {
		t.Errorf("caches %d programs, want %d", got, maxPrograms)
	}
	for text, want := range map[string]bool{first: true, "data == 1.0": false, fmt.Sprintf("data == %d.0", maxPrograms): true} {
		if got := slices.Contains(cached, text); got != want {
			t.Errorf("%s cached: %v, want %v", text, got, want)
		}
	}
	for i := range 70 {
		if _, err := c.program(repeated(fmt.Sprintf(`data.x==%d`, i))); err != nil {
			t.Fatal(err)
		}
	}
	if cached, memory := c.programs.Contents(); memory > maxProgramMemory || len(cached) > 64 {
		t.Errorf("%d programs of %d bytes are cached", len(cached), memory)
	}
}

// TestProgramMemoryIsEstimated holds the estimate against the memory that programs really use.
func TestProgramMemoryIsEstimated(t *testing.T) {
	class := `^(\\pL`
	for i := range 80 {
		class += fmt.Sprintf("|%d", i%10)
	}
	for _, text := range []string{
		repeated(`1==1`), repeated(`data.a.b`), repeated(`data[0]`), repeated(`[[],[],[]]==[]`), repeated(`has(data.b)`),
		repeated(`[1].all(a,a>0)`), repeated(`"a" in data`), repeated(`!data`), `[` + strings.Repeat(`[],`, 1300) + `1]==data`,
		`data.x.matches("` + class + `)$")`, `data.x.matches("(a{30}|b{30}|c{30}){2}")`, `data.x`,
	} {
		const copies = 4
		kept := make([]any, copies)
		before := inUse()
		for i := range kept {
			program, err := compile(text)
			if err != nil {
				t.Fatalf("%.30s: %v", text, err)
			}
			kept[i] = program
		}
		used := int(inUse()-before) / copies
		runtime.KeepAlive(kept)
		t.Logf("%.30s: %d bytes take %d kB, estimated %d kB", text, len(text), used>>10, ProgramMemory(text)>>10)
		if used > ProgramMemory(text) {
			t.Errorf("%.30s: takes %d kB, estimated %d kB", text, used>>10, ProgramMemory(text)>>10)
		}
	}
}

func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// FuzzConditions: no condition and no data make an evaluation crash or exceed its limits.
func FuzzConditions(f *testing.F) {
	for _, attack := range attacks {
		f.Add(attack.text, `{"l": [1, [2], {"a": 3}], "s": "text", "m": {"a": 1}}`)
	}
	f.Add(`data.s.matches("^a{1,20}$") || 1 in data.l`, `{"s": "aaa"}`)
	c := New(time.Now)
	f.Fuzz(func(t *testing.T, text, data string) {
		value, err := Decode([]byte(data))
		if err != nil || len(data) > 1<<16 {
			return
		}
		start := time.Now()
		_, err = c.Matches(t.Context(), text, Variables{Data: value, SignalName: "s", Attributes: map[string]string{}})
		if took := time.Since(start); took > maxTime+2*time.Second {
			t.Errorf("took %s: %v", took, err)
		}
	})
}
