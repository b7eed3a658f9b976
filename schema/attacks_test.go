package schema

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func never() error { return nil }

// doubled is a schema in which each definition refers to the next one twice, by a keyword.
func doubled(levels int, keyword, last string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"$ref":"#/$defs/d0","$defs":{`)
	for i := range levels {
		ref := fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)
		if keyword == "properties" { // a step into the value, twice
			ref = fmt.Sprintf(`{"properties":{"a":%s}}`, ref)
			keyword := "allOf"
			fmt.Fprintf(&b, `"d%d":{"%s":[%s,%s]},`, i, keyword, ref, ref)
			continue
		}
		fmt.Fprintf(&b, `"d%d":{"%s":[%s,%s]},`, i, keyword, ref, ref)
	}
	fmt.Fprintf(&b, `"d%d":%s}}`, levels, last)
	return b.String()
}

// refusals are schemas that would take hours or gigabytes, and what refuses them when they are put.
var refusals = []struct{ name, schema, want string }{
	{"numbers", `{"minimum":1e999999}`, "the number is out of range"},
	{"a number that crashed", `{"multipleOf":1e99999999}`, "the number is out of range"},
	{"many digits", `{"const":` + strings.Repeat("9", 100_000) + `}`, "the number is out of range"},
	{"a small number", `{"multipleOf":1e-999999}`, "the number is out of range"},
	{"references that double", doubled(27, "allOf", `{"type":"integer"}`), "more than 10000 schemas"},
	{"alternatives that double", doubled(16, "anyOf", `{"type":"integer"}`), "more than 10000 schemas"},
	{"a reference to itself", `{"$ref":"#"}`, "leads back to its schema"},
	{"references in a circle", `{"$defs":{"a":{"not":{"$ref":"#/$defs/b"}},"b":{"if":{"$ref":"#/$defs/a"}}}}`, "leads back"},
	{"large repeats", `{"pattern":"(?:[ab]?){1000}"}`, "the patterns are too large"},
	{"repeats of repeats", `{"pattern":"(a{50}){20}b{1000}c{1000}"}`, "the patterns are too large"},
	{"many patterns", `{"allOf":[` + strings.Repeat(`{"pattern":"(a|b|ab){99}c"},`, 100) + `{}]}`, "the patterns are too large"},
	{"many classes", `{"patternProperties":{"` + strings.Repeat(`\\pL`, 40) + `":true}}`, "the patterns are too large"},
	{"levels", strings.Repeat(`{"not":`, 100) + `{}` + strings.Repeat(`}`, 100), "deeper than 64 levels"},
	{"bytes", `{"title":"` + strings.Repeat("x", MaxLength) + `"}`, "the limit is 262144"},
}

func TestSchemasAreRefusedWhenTheyArePut(t *testing.T) {
	t.Parallel()
	for _, tt := range refusals {
		before := allocated()
		if _, err := Compile([]byte(tt.schema)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
		if used := allocated() - before; used > 64<<20 { // of all parallel tests
			t.Errorf("%s: allocated %d MiB", tt.name, used>>20)
		}
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// nested is a value of some levels in a member.
func nested(levels int) string {
	return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
}

// attacks are schemas and values whose checks would take seconds to hours, or gigabytes.
var attacks = []struct {
	name, schema, value string
	want                error // nil: the check is cheap
}{
	{"a number that crashed", `{"minimum":0}`, `1e99999999`, ErrViolations},
	{"a number in a list", `{"items":{"multipleOf":0.01}}`, `[1e99999999,1e-99999999]`, ErrViolations},
	{"integers of many digits", `{"type":"array","items":{"type":"integer"}}`,
		`[` + strings.Repeat(`1e999999,`, 50) + `1]`, ErrViolations},
	{"small numbers", `{"items":{"type":"integer"}}`, `[` + strings.Repeat(`1e-999999,`, 50) + `1]`, ErrViolations},
	{"numbers in range", `{"items":{"type":"integer","multipleOf":1e-300}}`,
		`[` + strings.Repeat(`1e300,`, 50_000) + `1]`, ErrCost},
	{"equal numbers", `{"uniqueItems":true}`, `[` + strings.Repeat(`1e999999,`, 500) + `1]`, ErrViolations},
	{"values that double", doubled(40, "properties", `{"type":"string"}`), nested(40), ErrCost},
	{"values that double and fail", doubled(11, "anyOf", `{"type":"string"}`), `1`, ErrViolations},
	{"values that double, in a list", `{"items":` + strings.ReplaceAll(doubled(11, "anyOf", `{"type":"string"}`),
		"#/$defs", "#/items/$defs") + `}`, `[` + strings.Repeat("1,", 10_000) + `1]`, ErrCost},
	{"long texts", `{"pattern":"((a|b|ab)*c?){9}d"}`, `"` + strings.Repeat("ab", 500_000) + `"`, ErrCost},
	{"a text for many patterns", `{"allOf":[` + strings.Repeat(`{"pattern":"(a?){9}b"},`, 10) + `{}]}`,
		`"` + strings.Repeat("a", 100_000) + `"`, ErrCost},
	{"many names and patterns", `{"patternProperties":{"(a?){40}b":true,"(a?){40}c":true,"(a?){40}d":true}}`,
		`{` + names(20_000) + `}`, ErrCost},
	{"errors", `{"items":{"type":"string"}}`, `[` + strings.Repeat(`1,`, 100_000) + `1]`, ErrViolations},
	{"errors in long places", `{"additionalProperties":{"items":{"type":"string"}}}`,
		`{"` + strings.Repeat("x", 100_000) + `":[` + strings.Repeat(`1,`, 100_000) + `1]}`, ErrViolations},
	{"many missing names", `{"items":{"required":[` + strings.Repeat(`"x",`, 10_000) + `"y"]}}`,
		`[` + strings.Repeat(`{},`, 10_000) + `{}]`, ErrCost},
	{"the same value for many", `{"allOf":[` + strings.Repeat(`{"uniqueItems":true},`, 1000) + `{}]}`,
		`[` + numbersUpTo(10_000) + `]`, ErrCost},
	{"a long value to be", `{"allOf":[` + strings.Repeat(`{"enum":[1]},`, 1000) + `{}]}`, `"` + strings.Repeat("a", 100_000) + `"`, ErrCost},
	{"names to remember", `{"allOf":[` + strings.Repeat(`{"properties":{"a":true},"additionalProperties":true},`, 1000) +
		`{}],"unevaluatedProperties":false}`, `{` + names(20_000) + `}`, ErrCost},
	{"items that contain", `{"allOf":[` + strings.Repeat(`{"contains":{"const":1}},`, 1000) + `{}]}`,
		`[` + strings.Repeat("0,", 10_000) + `1]`, ErrCost},
	{"levels times schemas", `{"properties":{"a":{"$ref":"#/$defs/n0"}},"$defs":{` + chain(200, `{"properties":{"a":{"$ref":"#/$defs/n0"}}}`) + `}}`,
		nested(1000) + strings.Repeat(" ", 1<<20), ErrCost},
	{"a usual value", `{"type":"object","required":["id"],"properties":{"id":{"type":"string","pattern":"^[a-z0-9-]{1,36}$"},
		"items":{"type":"array","items":{"type":"object","properties":{"sku":{"enum":["a","b"]},"n":{"type":"integer","minimum":1}}}}}}`,
		`{"id":"order-1","items":[` + strings.Repeat(`{"sku":"a","n":12},`, 50_000) + `{"sku":"b","n":1}]}`, nil},
	{"usual numbers", `{"items":{"type":"number","multipleOf":0.01}}`, `[` + strings.Repeat(`12.34,`, 50_000) + `1]`, nil},
}

// chain is definitions each of which refers to the next one.
func chain(length int, last string) string {
	var b strings.Builder
	for i := range length {
		fmt.Fprintf(&b, `"n%d":{"$ref":"#/$defs/n%d"},`, i, i+1)
	}
	fmt.Fprintf(&b, `"n%d":%s`, length, last)
	return b.String()
}

func names(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"aaaaaaaaaaaaaaaaaaaaaaaa%d":1,`, i)
	}
	return b.String() + `"z":1`
}

func numbersUpTo(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d,", i)
	}
	return b.String() + "-1"
}

// TestAttacksAreStopped counts the work of each check, which never exceeds its limit. Errors and memory are bounded too.
func TestAttacksAreStopped(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	for _, attack := range attacks {
		s, err := Compile([]byte(attack.schema))
		if err != nil {
			t.Errorf("%s: %v", attack.name, err)
			continue
		}
		before := allocated()
		got := s.Check([]byte(attack.value), never)
		used := allocated() - before
		if !errors.Is(got, attack.want) || attack.want == nil && got != nil {
			t.Errorf("%s: got %.200v, want %v", attack.name, got, attack.want)
		}
		if found, _ := errors.AsType[Violations](got); len(found) > maxViolations || len(fmt.Sprint(got)) > 200_000 {
			t.Errorf("%s: %d violations of %d bytes", attack.name, len(found), len(fmt.Sprint(got)))
		}
		if used > 192<<20 {
			t.Errorf("%s: allocated %d MiB", attack.name, used>>20)
		}
	}
}

// TestWorkIsChargedBeforeItIsDone has a check do one step after its limit.
func TestWorkIsChargedBeforeItIsDone(t *testing.T) {
	t.Parallel()
	s, err := Compile([]byte(`{"items":{"pattern":"(a?){40}b"}}`))
	if err != nil {
		t.Fatal(err)
	}
	value, err := decode([]byte(`["` + strings.Repeat("a", 10_000) + `"]`))
	if err != nil {
		t.Fatal(err)
	}
	cost := s.root.array.rest.text.pattern.Cost(10_000)
	for left, want := range map[int]error{cost + 1: ErrCost, cost + 2: nil} { // two values
		c := check{left: left, stopped: never}
		c.value(s.root, value, nil, nil)
		if !errors.Is(c.err, want) || want == nil && c.err != nil {
			t.Errorf("with %d: got %v, want %v", left, c.err, want)
		}
	}
}

// TestCheckEndsWithItsContext asks what has stopped it while it works, not only at its ends.
func TestCheckEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s, err := Compile([]byte(`{"items":{"type":"integer"}}`))
	if err != nil {
		t.Fatal(err)
	}
	stop, asked := errors.New("stop"), 0
	err = s.Check([]byte(`[`+strings.Repeat(`1,`, 100_000)+`1]`), func() error {
		if asked++; asked == 3 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || asked != 3 {
		t.Errorf("got %v, asked %d times", err, asked)
	}
}

// TestSizeIsEstimated holds the estimate against the memory that schemas really take.
func TestSizeIsEstimated(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	var properties, alternatives strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&properties, `"p%d":{},`, i)
		fmt.Fprintf(&alternatives, `{"const":%d},`, i)
	}
	for _, text := range []string{
		`{}`, `{"type":"object"}`, `{"properties":{` + properties.String() + `"z":true}}`,
		`{"anyOf":[` + alternatives.String() + `true]}`, `{"allOf":[` + strings.Repeat(`{},`, 9000) + `{}]}`,
		`{"pattern":"(a{40}|b{40}|c{40}){10}"}`, `{"pattern":"` + strings.Repeat(`[^a]`, 600) + `"}`, `{"pattern":"\\pL"}`,
		`{"enum":[` + strings.Repeat(`"aaaaaaaaaaaaaaaa",`, 2000) + `1]}`,
	} {
		const copies = 8
		kept := make([]*Schema, copies)
		before := inUse()
		for i := range kept {
			var err error
			if kept[i], err = Compile([]byte(text)); err != nil {
				t.Fatalf("%.40s: %v", text, err)
			}
		}
		used, estimated := int(inUse()-before)/copies, kept[0].Size()
		runtime.KeepAlive(kept)
		t.Logf("%.40s: %d bytes take %d kB, estimated %d kB", text, len(text), used>>10, estimated>>10)
		if used > estimated {
			t.Errorf("%.40s: takes %d kB, estimated %d kB", text, used>>10, estimated>>10)
		}
	}
}

func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
