package entities

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestCursorOfAMomentComesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := moment{
			at: time.UnixMilli(rapid.Int64Range(0, day.AddDate(100, 0, 0).UnixMilli()).Draw(t, "ms")).UTC(),
			id: rapid.StringMatching(`[a-z][a-zA-Z0-9_:.-]{0,40}`).Draw(t, "id"), // colons included
		}
		got, err := parseMoment(want.String())
		if err != nil || !got.at.Equal(want.at) || got.id != want.id {
			t.Fatalf("cursor %q came back as %v, %v", want, got, err)
		}
	})
}

func TestStrangeCursorsAreInvalid(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"no colon":                 "1772366400000",
		"no ID":                    "1772366400000:",
		"no time":                  ":wrun_1",
		"a time in words":          "today:wrun_1",
		"a fraction":               "1.5:wrun_1",
		"beyond 64 bits":           "9223372036854775808:wrun_1",
		"a time Postgres has not":  "9223372036854775807:wrun_1",
		"a time before Postgres's": "-9223372036854775808:wrun_1",
		"an event's":               "eid:evnt_00000000000000000000000001",
		"a NUL":                    "1772366400000:wrun_\x00",
		"not UTF-8":                "1772366400000:wrun_\xff",
	}
	for name, cursor := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parseMoment(cursor)
			wantInvalid(t, err, false)
		})
	}
}

func TestPageOrder(t *testing.T) {
	t.Parallel()
	tests := map[bool][2]string{false: {"ASC", ">"}, true: {"DESC", "<"}}
	for descending, want := range tests {
		keyword, after := Page{Descending: descending}.order()
		if got := [2]string{keyword, after}; got != want {
			t.Errorf("descending %t: got %v, want %v", descending, got, want)
		}
	}
}
