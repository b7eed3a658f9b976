package condition

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// variables returns the variables of a signal with the given data.
func variables(t testing.TB, data string) Variables {
	t.Helper()
	value, err := Decode([]byte(data))
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return Variables{
		Data: value, SignalName: "paid", SignalID: "sig_1", RunID: "wrun_1", Attributes: map[string]string{"order": "7"},
	}
}

func TestConditions(t *testing.T) {
	t.Parallel()
	c := New(time.Now)
	const order = `{
		"id": "7", "amount": 120, "price": 99.5, "none": null, "paid": true, "far": 1e3, "huge": 1e999,
		"big": 9007199254740993, "bigger": 18446744073709551615, "low": -9007199254740993,
		"items": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}], "tags": ["x", "y"], "at": "2026-11-21T10:00:00Z"}`
	for text, want := range map[string]bool{
		``:                                                 true,
		`true`:                                             true,
		`data.paid`:                                        true,
		`!data.paid`:                                       false,
		`data.amount > 100`:                                true,
		`data.amount > 120`:                                false,
		`data.amount >= 120.0`:                             true,
		`data.amount == 120`:                               true,
		`data.amount == 120.0`:                             true,
		`data.amount == 120u`:                              true,
		`data.amount in [1, 120]`:                          true,
		`data.price > 99`:                                  true,
		`data.price == 99`:                                 false,
		`data.price * 2.0 > 198.0`:                         true,
		`data.far == 1000`:                                 true,
		`data.huge > 1`:                                    true,
		`data.amount % 7 == 1`:                             true,
		`data.big == 9007199254740993`:                     true,
		`data.big == 9007199254740992`:                     false,
		`data.bigger == 18446744073709551615u`:             true,
		`data.low == -9007199254740993`:                    true,
		`data.none == null`:                                true,
		`has(data.none)`:                                   true,
		`has(data.nothing)`:                                false,
		`has(data.nothing) && data.nothing.x > 1`:          false,
		`data.nothing.x > 1 || data.paid`:                  true,
		`data.id == run.attributes.order`:                  true,
		`data.id == run.attributes["order"]`:               true,
		`"customer" in run.attributes`:                     false,
		`run.id == "wrun_1" && signal.name == "paid"`:      true,
		`signal.id == "sig_1"`:                             true,
		`data.items.exists(i, i.sku == "b" && i.n > 1)`:    true,
		`data.items.all(i, i.n > 1)`:                       false,
		`size(data.items) == 2 && data.items[1].n == 2`:    true,
		`data.id.matches("^[0-9]+$")`:                      true,
		`timestamp(data.at).getHours() == 10`:              true,
		`data["id"].startsWith("7") && "x" in data.tags`:   true,
		`duration("90m") > duration("1h") && data != null`: true,
	} {
		if err := check(t, c, text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		for range 2 { // the second time from the cache
			if got, err := c.Matches(t.Context(), text, variables(t, order)); got != want || err != nil {
				t.Errorf("%s: got %v, %v; want %v", text, got, err, want)
			}
		}
	}
	for data, text := range map[string]string{`"x"`: `data == "x"`, `5`: `data > 4`, `null`: `data == null`, `[1]`: `data[0] == 1`} {
		if got, err := c.Matches(t.Context(), text, variables(t, data)); !got || err != nil {
			t.Errorf("%s of %s: got %v, %v", text, data, got, err)
		}
	}
}

// check is Check, which is not called for the empty condition.
func check(t *testing.T, c *Conditions, text string) error {
	t.Helper()
	if text == "" {
		return nil
	}
	return c.Check(t.Context(), "default", text)
}

func wantRefused(t *testing.T, c *Conditions, text, reason string) {
	t.Helper()
	err := c.Check(t.Context(), "default", text)
	if !errors.Is(err, entities.ErrInvalid) || !strings.Contains(err.Error(), reason) {
		t.Errorf("%.60s: got error %v, want %q", text, err, reason)
	}
}

func TestCheckRejects(t *testing.T) {
	t.Parallel()
	c := New(time.Now)
	for text, reason := range map[string]string{
		``:                             `line 1, column 1: `,
		`data.amount >`:                `line 1, column 14: `,
		`data.amount = 1`:              `line 1, column 13: `,
		"data.paid &&\n  dta.x":        `line 2, column 3: undeclared reference to 'dta'`,
		`run.atributes.x == "y"`:       `line 1, column 14: undeclared reference to 'run.atributes.x' (did you mean 'run.attributes'?)`,
		`run.id > 5`:                   `line 1, column 8: found no matching overload`,
		`1 + 1`:                        `its value is a int; want a bool`,
		`"yes"`:                        `its value is a string`,
		`run.id.matches("[")`:          `condition: `,
		`data.tags.glue(",") == "x,y"`: `line 1, column 15: undeclared reference to 'glue'`,
		`data.x.matches(data.y)`:       `line 1, column 15: the pattern of matches is not a literal`,
		`matches(data.x, "a" + "b")`:   `line 1, column 8: the pattern of matches is not a literal`,
		`f(data)`:                      `line 1, column 2: undeclared reference to 'f'`,
		"data == \"\x00\"":             `contains NUL or invalid UTF-8`,
		"data == \"\xff\"":             `contains NUL or invalid UTF-8`,
		`"` + strings.Repeat("x", MaxLength) + `" == data`:                      `the limit is 4096`,
		strings.Repeat("(", 2*maxDepth) + "1" + strings.Repeat(")", 2*maxDepth): `condition: line`,
	} {
		wantRefused(t, c, text, reason)
		if got, err := c.Matches(t.Context(), text, variables(t, `{}`)); text != "" && (got || err == nil) {
			t.Errorf("%.60s matches: %v, %v", text, got, err)
		}
	}
}

// TestUnevaluableConditionDoesNotMatch covers signal data that the author of the condition did not expect.
func TestUnevaluableConditionDoesNotMatch(t *testing.T) {
	t.Parallel()
	c := New(time.Now)
	for _, test := range []struct{ text, data string }{
		{`data.amount > 100`, `{}`},
		{`data.amount > 100`, `{"amount":"many"}`},
		{`data.amount > 100`, `{"amount":null}`},
		{`data.amount > 100`, `null`},
		{`data.amount > 100`, `[1]`},
		{`data.a.b.c`, `{"a":{"b":{"c":"yes"}}}`},
		{`data`, `1`},
		{`data.amount * 2 > 100`, `{"amount":"60"}`},
		{`run.attributes.customer == "x"`, `{}`},
		{`int(data.n) / 0 == 1`, `{"n":1}`},
	} {
		if err := c.Check(t.Context(), "default", test.text); err != nil {
			t.Errorf("%s: %v", test.text, err)
		}
		if got, err := c.Matches(t.Context(), test.text, variables(t, test.data)); got || err == nil {
			t.Errorf("%s of %s: got %v, %v", test.text, test.data, got, err)
		}
	}
}

// TestEvaluationCostIsLimited: neither the condition nor the data can keep a worker busy.
func TestEvaluationCostIsLimited(t *testing.T) {
	t.Parallel()
	c := New(time.Now)
	text := `data.all(a, data.all(b, data.all(c, a + b + c >= 0.0)))`
	data := "[" + strings.Repeat("1,", 999) + "1]"
	if err := c.Check(t.Context(), "default", text); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Matches(t.Context(), text, variables(t, data)); got || err == nil || !strings.Contains(err.Error(), "cost limit") {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := c.Matches(t.Context(), text, variables(t, `[1,2,3]`)); !got || err != nil {
		t.Errorf("small data: got %v, %v", got, err)
	}
}

func TestConditionsAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	c := New(time.Now)
	v := variables(t, `{"n":5}`)
	var goroutines sync.WaitGroup
	for i := range 8 {
		goroutines.Go(func() {
			for n := range 200 {
				if got, err := c.Matches(t.Context(), fmt.Sprintf("data.n == %d", n%10), v); err != nil || got != (n%10 == 5) {
					t.Errorf("goroutine %d: got %v, %v", i, got, err)
				}
			}
		})
	}
	goroutines.Wait()
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `{`, `1 2`, `x`} {
		if got, err := Decode([]byte(text)); err == nil {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
