package entities

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// wantOnlyInvalid fails the test on an error other than [ErrInvalid].
func wantOnlyInvalid(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v, which is not an ErrInvalid", err)
	}
}

// FuzzEventID ensures that each position has exactly one ID, and that no other text is an ID.
func FuzzEventID(f *testing.F) {
	f.Add(string(eventIDAt(1)))
	f.Add(string(eventIDAt(1<<63 - 1)))
	f.Add("evnt_00000000000000000000000000")
	f.Add("evnt_+0000000000000000000000001")
	f.Add("evnt_99999999999999999999999999")
	f.Add("evnt_0000000000000000000000000１")
	f.Fuzz(func(t *testing.T, text string) {
		seq, err := EventID(text).Seq()
		wantOnlyInvalid(t, err)
		if err == nil && (seq < 1 || string(eventIDAt(seq)) != text) {
			t.Errorf("%q was parsed as position %d, whose ID is %q", text, seq, eventIDAt(seq))
		}
	})
}

// FuzzIDs ensures that every accepted ID and name can be stored and is within its length limit, and that every ID is a
// single segment of a path.
func FuzzIDs(f *testing.F) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	for _, text := range []string{
		"wrun_01KJM8J2G00000000000000000", "wrun_7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "wrun_81KJM8J2G00000000000000000",
		"wrun_01kjm8j2g00000000000000000", "step_1", "", ".", "..", "a/b", "a\\b", "\x00", "a\u2028b", "\xff", "é",
		strings.Repeat("a", maxIDLength), strings.Repeat("a", maxNameLength+1),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for what, validate := range map[string]func(string) error{
			"new run ID": func(s string) error { return ValidateNewRunID(RunID(s), now) },
			"ID":         func(s string) error { return ValidateID("ID", s) },
			"name":       func(s string) error { return ValidateName("name", s) },
			"token":      ValidateToken,
		} {
			err := validate(text)
			wantOnlyInvalid(t, err)
			if err != nil {
				if !utf8.ValidString(err.Error()) {
					t.Errorf("%s: the error %q is not UTF-8", what, err)
				}
				continue
			}
			if text == "" || len(text) > maxNameLength || !utf8.ValidString(text) || strings.Contains(text, "\x00") {
				t.Errorf("%s %q was accepted and cannot be stored", what, text)
			}
			if strings.HasSuffix(what, "ID") && (strings.ContainsAny(text, "/\\ \n") || len(text) > maxIDLength) {
				t.Errorf("%s %q was accepted and does not fit into a path", what, text)
			}
		}
		if ValidateNewRunID(RunID(text), now) == nil && ValidateID("run ID", text) != nil {
			t.Errorf("%q is valid for a new run, but not as an ID", text)
		}
	})
}
