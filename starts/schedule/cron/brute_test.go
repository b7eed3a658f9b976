package cron_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// zones have all kinds of clocks: none, summer time in both hemispheres, at midnight and by half an hour, offsets that
// are no full hours, and zones that moved.
var zones = []string{
	"UTC", "Europe/Berlin", "Europe/London", "Europe/Dublin", "Europe/Moscow", "Europe/Istanbul", "Europe/Volgograd",
	"America/New_York", "America/Los_Angeles", "America/St_Johns", "America/Sao_Paulo", "America/Santiago",
	"America/Havana", "America/Asuncion", "America/Mexico_City", "America/Nuuk", "Africa/Cairo", "Africa/Casablanca",
	"Africa/Juba", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Tehran", "Asia/Beirut", "Asia/Gaza", "Asia/Amman",
	"Australia/Lord_Howe", "Australia/Sydney", "Pacific/Apia", "Pacific/Chatham", "Antarctica/Troll",
}

// drawExpressions returns 200 expressions.
func drawExpressions() []string {
	r := rand.New(rand.NewPCG(8, 2))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	number := func(least, most int) string { return strconv.Itoa(least + r.IntN(most-least+1)) }
	list := []string{"* * * * *", "*/15 * * * *", "0 * * * *", "30 2 * * *", "0 0 * * *", "59 23 L * *", "* 2 * * *"}
	for len(list) < 200 {
		minute := pick(number(0, 59), number(0, 59), "0", "30", number(0, 29)+",59", "0-30/10", "*/20", "45/5")
		hour := pick(number(0, 4), number(0, 4), number(0, 23), "0", "1-3", "0-23", "*/2", "*", "22,23,0,1")
		day := pick("*", "*", "*", "?", number(1, 31), "L", "L-"+number(1, 9), number(1, 28)+"W", "LW", "*/3", "1-7,25-31")
		month := pick("*", "*", "*", "3,4,9-11", "MAR-NOV", "*/2", "OCT", "3")
		weekday := pick("*", "*", "*", "SUN", "6,7", "FRI-SUN", "MON#2", "0L", "SUN#1,0L", "5#5")
		text := strings.Join([]string{minute, hour, day, month, weekday}, " ")
		if !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}

// model is an expression as naively as it can be understood: two tables that are filled by asking for each value.
type model struct {
	recurring bool
	minutes   [24 * 60]bool
	days      []bool // from firstDay on
}

var (
	firstDay = time.Date(2019, 12, 25, 0, 0, 0, 0, time.UTC)
	lastDay  = time.Date(2031, 1, 7, 0, 0, 0, 0, time.UTC)
	decade   = [2]time.Time{time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)}
)

func newModel(text string) *model {
	f := strings.Fields(text)
	m := &model{recurring: strings.Contains(f[0], "*") || strings.Contains(f[1], "*")}
	for i := range m.minutes {
		m.minutes[i] = has(f[0], i%60, 59, nil) && has(f[1], i/60, 23, nil)
	}
	months := strings.Fields("- JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC")
	for d := firstDay; d.Before(lastDay); d = d.AddDate(0, 0, 1) {
		inMonth := has(f[2], d.Day(), 31, nil) || dayByName(f[2], d)
		inWeek := hasWeekday(f[4], d)
		either := inMonth || inWeek
		if strings.ContainsAny(f[2]+f[4], "*?") {
			either = inMonth && inWeek
		}
		m.days = append(m.days, either && has(f[3], int(d.Month()), 12, months))
	}
	return m
}

// has reports whether a list of numbers, ranges and steps has a value.
func has(list string, value, most int, names []string) bool {
	number := func(s string) int {
		if i := slices.Index(names, s); i >= 0 {
			return i
		}
		n, err := strconv.Atoi(s)
		if err != nil {
			return -1
		}
		return n
	}
	for _, item := range strings.Split(list, ",") {
		base, step, stepped := strings.Cut(item, "/")
		first, last, isRange := strings.Cut(base, "-")
		from, to := number(first), number(first)
		switch {
		case base == "*" || base == "?":
			from, to = 0, most
			if most == 31 || most == 12 {
				from = 1
			}
		case isRange:
			to = number(last)
		case stepped:
			to = most
		}
		every := 1
		if stepped {
			every = number(step)
		}
		if from >= 0 && value >= from && value <= to && (value-from)%every == 0 {
			return true
		}
	}
	return false
}

// dayByName reports whether the field selects the date with L or W.
func dayByName(list string, d time.Time) bool {
	last := time.Date(d.Year(), d.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
	for _, item := range strings.Split(list, ",") {
		target := 0
		if before, ok := strings.CutPrefix(item, "L-"); ok {
			n, _ := strconv.Atoi(before)
			if d.Day() == last-n {
				return true
			}
		}
		switch {
		case item == "L" && d.Day() == last:
			return true
		case item == "LW":
			target = last
		case strings.HasSuffix(item, "W"):
			target, _ = strconv.Atoi(strings.TrimSuffix(item, "W"))
		}
		if target == 0 || target > last {
			continue
		}
		for _, distance := range []int{0, -1, 1, -2, 2} { // the nearest weekday of the month
			near := time.Date(d.Year(), d.Month(), target+distance, 0, 0, 0, 0, time.UTC)
			if near.Month() == d.Month() && near.Weekday() != time.Saturday && near.Weekday() != time.Sunday {
				if near.Equal(d) {
					return true
				}
				break
			}
		}
	}
	return false
}

// hasWeekday reports whether the field selects the date.
func hasWeekday(list string, d time.Time) bool {
	names := strings.Fields("SUN MON TUE WED THU FRI SAT SUN")
	same := func(text string) bool {
		return has(text, int(d.Weekday()), 7, names) || d.Weekday() == 0 && text == "7"
	}
	for _, item := range strings.Split(list, ",") {
		if day, nth, ok := strings.Cut(item, "#"); ok {
			n, _ := strconv.Atoi(nth)
			if same(day) && d.AddDate(0, 0, -7*(n-1)).Month() == d.Month() && d.AddDate(0, 0, -7*n).Month() != d.Month() {
				return true
			}
			continue
		}
		if day, ok := strings.CutSuffix(item, "L"); ok {
			if same(day) && d.AddDate(0, 0, 7).Month() != d.Month() {
				return true
			}
			continue
		}
		if item == "FRI-SUN" {
			if d.Weekday() == 5 || d.Weekday() == 6 || d.Weekday() == 0 {
				return true
			}
			continue
		}
		if same(item) {
			return true
		}
	}
	return false
}

// shown has what the clock of a zone shows at each UTC minute of a span, in minutes since firstDay.
func shown(z *time.Location, from, end time.Time) []int32 {
	var list []int32
	for t := from; t.Before(end); t = t.Add(time.Minute) {
		_, offset := t.In(z).Zone()
		list = append(list, int32((t.Sub(firstDay)+time.Duration(offset)*time.Second)/time.Minute))
	}
	return list
}

// walk returns at which minutes of the span the model ticks, by looking at the clock minute by minute.
func (m *model) walk(clock []int32) (ticks []int) {
	matches := func(shown int32) bool { return m.minutes[shown%(24*60)] && m.days[shown/(24*60)] }
	latest := clock[0] - 1
	for i, now := range clock {
		tick := false
		switch skipped := now - latest - 1; {
		case m.recurring || skipped > 3*60:
			tick = (m.recurring || skipped > 0) && matches(now)
		default:
			for shown := latest + 1; shown <= now; shown++ {
				tick = tick || matches(shown)
			}
		}
		latest = max(latest, now)
		if tick {
			ticks = append(ticks, i)
		}
	}
	return ticks
}

// TestTicksEqualThoseOfAWalkOverEveryMinute compares 200 expressions in 30 zones with what somebody would see who looks
// at a clock in the zone every minute: for three days around each change of the clock from 2020 to 2030, or for all these
// years if STEPWELL_TEST_CRON_DECADE is set, which takes minutes.
func TestTicksEqualThoseOfAWalkOverEveryMinute(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("compares millions of ticks")
	}
	expressions := drawExpressions()
	models := make([]*model, len(expressions))
	for i, text := range expressions {
		models[i] = newModel(text)
	}
	for _, name := range zones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			z, compared := zone(t, name), 0
			for _, span := range spans(z) {
				clock := shown(z, span[0], span[1])
				for i, text := range expressions {
					want := models[i].walk(clock)
					got := ticks(parse(t, text), z, span[0], span[1])
					if !slices.EqualFunc(got, want, func(at time.Time, minute int) bool {
						return at.Equal(span[0].Add(time.Duration(minute) * time.Minute))
					}) {
						t.Fatalf("%s from %s: %s", text, span[0], firstDifference(got, want, span[0]))
					}
					compared += len(got)
				}
			}
			if compared < 5_000 {
				t.Errorf("only %d ticks were compared", compared)
			}
		})
	}
}

// spans returns the times around the changes of a zone's clock, or the whole decade. All begin when no time is shown
// for the second time.
func spans(z *time.Location) (list [][2]time.Time) {
	if os.Getenv("STEPWELL_TEST_CRON_DECADE") != "" {
		return [][2]time.Time{decade}
	}
	const around = 36 * time.Hour
	for t := decade[0]; t.Before(decade[1]); {
		_, end := t.In(z).ZoneBounds()
		if end.IsZero() || end.After(decade[1]) {
			break
		}
		list = append(list, [2]time.Time{end.UTC().Add(-around), end.UTC().Add(around)})
		t = end
	}
	if len(list) == 0 {
		list = [][2]time.Time{{decade[0], decade[0].AddDate(0, 0, 60)}}
	}
	return list
}

func firstDifference(got []time.Time, want []int, from time.Time) string {
	for i := range max(len(got), len(want)) {
		var g, w time.Time
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = from.Add(time.Duration(want[i]) * time.Minute)
		}
		if !g.Equal(w) {
			return fmt.Sprintf("tick %d is at %s, want %s", i, g, w)
		}
	}
	return "none"
}
