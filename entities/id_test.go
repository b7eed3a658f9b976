package entities

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"
)

// runIDAt returns a run ID made at the time, tagged with the region as newer clients do; 0 for no tag (protocol §2.6).
func runIDAt(at time.Time, region byte) RunID {
	var u ulid.ULID
	if err := u.SetTime(ulid.Timestamp(at)); err != nil {
		panic(err)
	}
	if region != 0 {
		u[0] |= 0x80
		u[6], u[7] = region<<2, 1<<5 // layout version 1 in the five bits across both bytes
	}
	return RunID("wrun_" + u.String())
}

func TestRunIDWindowIs24HoursBackAnd5MinutesAhead(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		age   time.Duration
		valid bool
	}{
		"now":                    {0, true},
		"24 hours old":           {24 * time.Hour, true},
		"older by a millisecond": {24*time.Hour + time.Millisecond, false},
		"5 minutes ahead":        {-5 * time.Minute, true},
		"ahead by a millisecond": {-5*time.Minute - time.Millisecond, false},
		"a month old":            {31 * 24 * time.Hour, false},
		"a month ahead":          {-31 * 24 * time.Hour, false},
		"time zero":              {time.Duration(day.UnixMilli()) * time.Millisecond, false},
		"one hour old":           {time.Hour, true},
	}
	for name, test := range tests {
		for kind, region := range map[string]byte{"plain": 0, "tagged with a region": 1, "tagged with the last": 63} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				id := runIDAt(day.Add(-test.age), region)
				if tagged := id[5] >= '4'; tagged != (region != 0) {
					t.Fatalf("the test's ID %q has the wrong first digit", id)
				}
				wantInvalid(t, ValidateNewRunID(id, day), test.valid)
			})
		}
	}
}

// TestWrongClockIsToldTheLimits in both directions.
func TestWrongClockIsToldTheLimits(t *testing.T) {
	t.Parallel()
	for _, age := range []time.Duration{25 * time.Hour, -6 * time.Minute} {
		made := day.Add(-age)
		err := ValidateNewRunID(runIDAt(made, 0), day)
		want := fmt.Sprintf("was made at %s by the client's clock, and here it is %s: "+
			"that may be at most 24 hours behind and 5 minutes ahead", made.Format(time.RFC3339), day.Format(time.RFC3339))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestMalformedNewRunIDIsInvalid(t *testing.T) {
	t.Parallel()
	good := string(runIDAt(day, 0))
	if err := ValidateNewRunID(RunID(good), day); err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"empty":                   "",
		"prefix only":             "wrun_",
		"no prefix":               strings.TrimPrefix(good, "wrun_"),
		"another prefix":          strings.Replace(good, "wrun_", "step_", 1),
		"a digit short":           good[:len(good)-1],
		"a digit more":            good + "0",
		"a letter not in base 32": good[:len(good)-1] + "U",
		"a path":                  good[:len(good)-1] + "/",
		"a NUL":                   good[:len(good)-1] + "\x00",
		"more than 128 bits":      "wrun_8" + good[6:],
		"a health check's":        "wrun_hc_" + good[8:],
	}
	for name, id := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantInvalid(t, ValidateNewRunID(RunID(id), day), false)
		})
	}
}

func TestRegionTagDoesNotAffectTheWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := day.Add(time.Duration(rapid.Int64Range(-48*3600_000, 48*3600_000).Draw(t, "ms")) * time.Millisecond)
		region := rapid.ByteRange(1, 63).Draw(t, "region")
		plain, tagged := ValidateNewRunID(runIDAt(at, 0), day), ValidateNewRunID(runIDAt(at, region), day)
		if (plain == nil) != (tagged == nil) {
			t.Fatalf("made at %s: plain %v, tagged %v", at, plain, tagged)
		}
	})
}

func TestValidateID(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		id    string
		valid bool
	}{
		"a step's":            {"step_01JNQ2Y3Z4A5B6C7D8E9F0G1H2", true},
		"one character":       {"a", true},
		"256 bytes":           {strings.Repeat("a", 256), true},
		"non-ASCII letters":   {"schritt_äß_步", true},
		"three dots":          {"...", true},
		"a dot inside":        {"a.b", true},
		"empty":               {"", false},
		"257 bytes":           {strings.Repeat("a", 257), false},
		"256 runes in 512":    {strings.Repeat("ä", 256), false},
		"a slash":             {"a/b", false},
		"a backslash":         {`a\b`, false},
		"current folder":      {".", false},
		"parent folder":       {"..", false},
		"a path upwards":      {"../a", false},
		"a space":             {"a b", false},
		"a no-break space":    {"a\u00a0b", false},
		"a new line":          {"a\n", false},
		"a NUL":               {"a\x00", false},
		"a zero-width joiner": {"a\u200db", false},
		"not UTF-8":           {"a\xff", false},
		"incomplete UTF-8":    {"a\xc3", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantInvalid(t, ValidateID("correlation ID", test.id), test.valid)
		})
	}
}

func TestValidateNameAndToken(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text  string
		valid bool
	}{
		"a workflow's":         {"workflow//./src/workflows/order.ts//processOrder", true},
		"one character":        {"a", true},
		"spaces and signs":     {"order #1 / 2 ?", true},
		"non-ASCII letters":    {"заказ 注文 🧾", true},
		"1,024 bytes":          {strings.Repeat("a", 1024), true},
		"1,025 bytes":          {strings.Repeat("a", 1025), false},
		"1,024 runes in 2,048": {strings.Repeat("ä", 1024), false},
		"empty":                {"", false},
		"a NUL":                {"a\x00b", false},
		"a tab":                {"a\tb", false},
		"a new line":           {"a\nb", false},
		"a delete":             {"a\x7f", false},
		"a C1 control":         {"a\u0085", false},
		"not UTF-8":            {"\xff\xfe", false},
		"a surrogate's bytes":  {"\xed\xa0\x80", false},
		"an overlong encoding": {"\xc0\x80", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantInvalid(t, ValidateName("workflowName", test.text), test.valid)
			wantInvalid(t, ValidateToken(test.text), test.valid)
		})
	}
}

func TestValidationErrorsNameTheField(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"missing ID":   ValidateID("correlation ID", ""),
		"long ID":      ValidateID("correlation ID", strings.Repeat("a", 300)),
		"odd ID":       ValidateID("correlation ID", "a/b"),
		"missing name": ValidateName("correlation ID", ""),
		"long name":    ValidateName("correlation ID", strings.Repeat("a", 2000)),
		"odd name":     ValidateName("correlation ID", "\x00"),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "correlation ID") {
			t.Errorf("%s: got %v, want an error that begins with the name of the field", name, err)
		}
	}
}
