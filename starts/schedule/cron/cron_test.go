package cron_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/starts/schedule/cron"
)

func parse(t *testing.T, text string) cron.Expression {
	t.Helper()
	e, err := cron.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// ticks returns the ticks from a time, which is one if it matches, to the end.
func ticks(e cron.Expression, z *time.Location, from, end time.Time) (list []time.Time) {
	for t, ok := e.Next(from.Add(-1), z); ok && t.Before(end); t, ok = e.Next(t, z) {
		list = append(list, t.UTC())
	}
	return list
}

// format returns the ticks as UTC texts without the year.
func format(list []time.Time) string {
	texts := make([]string, len(list))
	for i, t := range list {
		texts[i] = t.Format("01-02T15:04")
	}
	return strings.Join(texts, " ")
}

// TestClocksThatJump has each kind of change of a clock. The local date is the one on which the clock changes.
func TestClocksThatJump(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, expression, zone string
		date                   string
		want                   string
	}{
		{"skipped", "30 2 * * *", "America/New_York", "2027-03-14", "03-14T07:00"},
		{"shown twice", "30 1 * * *", "America/New_York", "2026-11-01", "11-01T05:30"},
		{"skipped", "30 2 * * *", "Europe/Berlin", "2027-03-28", "03-28T01:00"},
		{"shown twice", "30 2 * * *", "Europe/Berlin", "2027-10-31", "10-31T00:30"},
		{"midnight skipped", "0 0 * * *", "Africa/Cairo", "2027-04-30", "04-29T22:00"},
		{"half an hour skipped", "15 2 * * *", "Australia/Lord_Howe", "2027-10-03", "10-02T15:30"},
		{"half an hour twice", "45 1 * * *", "Australia/Lord_Howe", "2027-04-04", "04-03T14:45"},
		{"two in one gap", "0,30 2 * * *", "Europe/Berlin", "2027-03-28", "03-28T01:00"},
		{"the end of the gap matches too", "30 2,3 * * *", "Europe/Berlin", "2027-03-28", "03-28T01:00 03-28T01:30"},
		{"its end is the same tick", "0 2,3 * * *", "Europe/Berlin", "2027-03-28", "03-28T01:00"},
		{"every minute of an hour that is skipped", "* 2 * * *", "Europe/Berlin", "2027-03-28", ""},
		{
			"hours are real", "0 */6 * * *", "Europe/Berlin", "2027-03-28",
			"03-27T23:00 03-28T04:00 03-28T10:00 03-28T16:00",
		},
		{"a step without a star means times", "0 2-3/1 * * *", "Europe/Berlin", "2027-10-31", "10-31T00:00 10-31T02:00"},
		{"the date is left out", "0 9 * * *", "Pacific/Apia", "2011-12-30", ""},
		{"the day before", "0 9 * * *", "Pacific/Apia", "2011-12-29", "12-29T19:00"},
		{"the day after", "0 9 * * *", "Pacific/Apia", "2011-12-31", "12-30T19:00"},
	} {
		t.Run(test.name+" "+test.expression+" "+test.zone, func(t *testing.T) {
			t.Parallel()
			z := zone(t, test.zone)
			date, err := time.ParseInLocation(time.DateOnly, test.date, z)
			if err != nil {
				t.Fatal(err)
			}
			y, m, d := date.Date()
			if test.zone == "Pacific/Apia" { // ParseInLocation moves a date that does not exist
				day, err := time.Parse(time.DateOnly, test.date)
				if err != nil {
					t.Fatal(err)
				}
				y, m, d = day.Date()
			}
			var list []time.Time
			for _, tick := range ticks(parse(t, test.expression), z, date.Add(-48*time.Hour), date.Add(72*time.Hour)) {
				if ty, tm, td := tick.In(z).Date(); ty == y && tm == m && td == d {
					list = append(list, tick)
				}
			}
			if got := format(list); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestHoursThatTheClockShowsTwiceTickTwice(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 11, 1, 4, 0, 0, 0, time.UTC) // 00:00 in New York
	for expression, want := range map[string]string{
		"0 * * * *":    "11-01T04:00 11-01T05:00 11-01T06:00 11-01T07:00",
		"*/30 1 * * *": "11-01T05:00 11-01T05:30 11-01T06:00 11-01T06:30",
		"0,30 1 * * *": "11-01T05:00 11-01T05:30",
	} {
		got := format(ticks(parse(t, expression), zone(t, "America/New_York"), from, from.Add(4*time.Hour)))
		if got != want {
			t.Errorf("%s: got %q, want %q", expression, got, want)
		}
	}
}

// TestDays has days of 2027, in which 1 January is a Friday.
func TestDays(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ days, months, weekdays, want string }{
		{"L", "2", "*", "02-28"},
		{"L-1", "1,2", "*", "01-30 02-27"},
		{"LW", "1,2,7,10", "*", "01-29 02-26 07-30 10-29"}, // Sunday, Sunday, Saturday, Sunday
		{"1W", "5,8", "*", "05-03 08-02"},                  // Saturday, Sunday
		{"15W", "5,8,9", "*", "05-14 08-16 09-15"},         // Saturday, Sunday, Wednesday
		{"31W", "1,4", "*", "01-29"},                       // a Sunday at the end; April has none
		{"*", "3", "1#1", "03-01"},                         // the first Monday
		{"*", "1", "FRI#5", "01-29"},                       // January has five
		{"*", "2", "5#5", ""},                              // February has not
		{"*", "3", "5L", "03-26"},                          // the last Friday
		{"*", "3", "MONL,2#1", "03-02 03-29"},              // a list
		{"13", "8", "FRI", "08-06 08-13 08-20 08-27"},      // either is enough
		{"*/10", "8", "SUN", "08-01"},                      // both, because there is a star: 1, 11, 21 and 31
		{"1-7", "jan", "*", "01-01 01-02 01-03 01-04 01-05 01-06 01-07"},
		{"*", "2", "FRI-SUN", "02-05 02-06 02-07 02-12 02-13 02-14 02-19 02-20 02-21 02-26 02-27 02-28"},
		{"?", "2", "7", "02-07 02-14 02-21 02-28"},
		{"10/10", "2", "*", "02-10 02-20"},
		{"29", "2", "*", ""},
	} {
		expression := strings.Join([]string{"0", "0", test.days, test.months, test.weekdays}, " ")
		from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
		var got []string
		for _, tick := range ticks(parse(t, expression), time.UTC, from, from.AddDate(1, 0, 0)) {
			got = append(got, tick.Format("01-02"))
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s: got %q, want %q", expression, text, test.want)
		}
	}
}

func TestShorthands(t *testing.T) {
	t.Parallel()
	from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for shorthand, want := range map[string]string{
		"@hourly": "2027-01-01 01:00", "@daily": "2027-01-02 00:00", "@midnight": "2027-01-02 00:00",
		"@weekly": "2027-01-03 00:00", "@Monthly": "2027-02-01 00:00", "@yearly": "2028-01-01 00:00",
		"@annually": "2028-01-01 00:00",
	} {
		next, ok := parse(t, shorthand).Next(from, time.UTC)
		if got := next.Format("2006-01-02 15:04"); !ok || got != want {
			t.Errorf("%s: got %s, want %s", shorthand, got, want)
		}
	}
}

func TestRareExpressionsAreFound(t *testing.T) {
	t.Parallel()
	from := time.Date(2072, 3, 1, 0, 0, 0, 0, time.UTC)
	for expression, want := range map[string]string{
		"0 0 29 2 *":  "2076-02-29",
		"0 0 * 2 1#5": "2112-02-29", // the next leap year whose 29 February is a Monday, as 2100 is none
	} {
		next, ok := parse(t, expression).Next(from, time.UTC)
		if got := next.Format(time.DateOnly); !ok || got != want {
			t.Errorf("%s: got %s, want %s", expression, got, want)
		}
	}
}

func TestBadExpressionsAreRejected(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"":                  "has 0 fields",
		"* * * *":           "has 4 fields",
		"0 0 * * * *":       "has 6 fields",
		"@often":            "@hourly",
		"60 * * * *":        `minute "60" is not a number from 0 to 59`,
		"* 24 * * *":        `hour "24" is not a number from 0 to 23`,
		"* * 0 * *":         `day of month "0" is not a number from 1 to 31`,
		"* * * 13 *":        `month "13" is not a number from 1 to 12 or a name from JAN to DEC`,
		"* * * * 8":         `day of week "8" is not a number from 0 to 7 or a name from SUN to SAT`,
		"* * * FOO *":       `month "FOO" is not`,
		"-1 * * * *":        `minute "" is not`,
		"+1 * * * *":        `minute "+1" is not`,
		"5-1 * * * *":       "goes backwards",
		"*/0 * * * *":       `step of minute "0" is not a number from 1 to 59`,
		"*/x * * * *":       `step of minute "X" is not`,
		"1,,2 * * * *":      `minute "" is not`,
		"* * 32W * *":       `day of month "32" is not`,
		"* * L-31 * *":      `days before the last "31" is not`,
		"* * * * 5#6":       `number of a weekday in its month "6" is not`,
		"* * * * L":         `day of week "" is not`,
		"0 0 30 2 *":        "never matches",
		"0 0 31 4,6,9,11 *": "never matches",
		"0 0 31W 2 *":       "never matches",
	} {
		_, err := cron.Parse(expression)
		if !errors.Is(err, entities.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", expression, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"*/15 9-17 * * MON-FRI", "0 0 L-2,15W,LW 2 5L,1#5", "@daily", "1,2/3 * ? * *"} {
		f.Add(seed)
	}
	from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		e, err := cron.Parse(text)
		if err != nil {
			return
		}
		if next, ok := e.Next(from, time.UTC); ok && (!next.After(from) || next.Second() != 0) {
			t.Errorf("%q: %s follows %s", text, next, from)
		}
	})
}
