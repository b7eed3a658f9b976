package pg

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// day is the date of the tests.
var day = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func TestTimeCursorRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := TimeCursor{
			At: time.UnixMilli(rapid.Int64Range(0, day.AddDate(100, 0, 0).UnixMilli()).Draw(t, "ms")).UTC(),
			ID: rapid.StringMatching(`[a-z][a-zA-Z0-9_:.-]{0,40}`).Draw(t, "id"), // colons included
		}
		got, err := ParseTimeCursor(want.String())
		if err != nil || !got.At.Equal(want.At) || got.ID != want.ID {
			t.Fatalf("cursor %q is parsed as %v, %v", want, got, err)
		}
	})
}

func TestMalformedTimeCursorIsInvalid(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"no colon":              "1772366400000",
		"no ID":                 "1772366400000:",
		"no time":               ":wrun_1",
		"a time in words":       "today:wrun_1",
		"a fraction":            "1.5:wrun_1",
		"beyond 64 bits":        "9223372036854775808:wrun_1",
		"later than Postgres's": "9223372036854775807:wrun_1",
		"before Postgres's":     "-9223372036854775808:wrun_1",
		"an event's":            "eid:evnt_00000000000000000000000001",
		"a NUL":                 "1772366400000:wrun_\x00",
		"not UTF-8":             "1772366400000:wrun_\xff",
	}
	for name, cursor := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseTimeCursor(cursor)
			if !errors.Is(err, entities.ErrInvalid) {
				t.Errorf("got %v, want ErrInvalid", err)
			}
		})
	}
}

func TestPageOrder(t *testing.T) {
	t.Parallel()
	tests := map[bool][2]string{false: {"ASC", ">"}, true: {"DESC", "<"}}
	for descending, want := range tests {
		keyword, after := Page{Descending: descending}.Order()
		check.Equal(t, fmt.Sprintf("descending %t", descending), [2]string{keyword, after}, want)
	}
}

// FuzzTimeCursor ensures that a parsed cursor has a time that Postgres can store, and round-trips.
func FuzzTimeCursor(f *testing.F) {
	f.Add("1772366400000:wrun_01KJM8J2G00000000000000000")
	f.Add("-62135596800000:a")
	f.Add("-62135596800001:a")
	f.Add("253402300800000:a")
	f.Add("9223372036854775807:a")
	f.Add("+1:a")
	f.Add("1:a:b")
	f.Add("1:")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseTimeCursor(text)
		if err != nil && !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("got %v, which is not an ErrInvalid", err)
		}
		if err != nil {
			return
		}
		if year := c.At.Year(); year < 1 || year > 9999 || entities.ValidateID("ID", c.ID) != nil {
			t.Errorf("%q was accepted as %v", text, c)
		}
		if again, err := ParseTimeCursor(c.String()); err != nil || again != c {
			t.Errorf("%q is parsed as %v, and its text as %v, %v", text, c, again, err)
		}
	})
}
