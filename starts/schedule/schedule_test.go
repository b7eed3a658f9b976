package schedule

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// nightly is valid.
func nightly() Spec {
	return Spec{
		Cron: "30 2 * * *", TimeZone: "Europe/Berlin", Workflow: "report", Overlap: OverlapSkip, CatchUp: CatchUpLatest,
		CatchUpWindow: DefaultWindow,
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	if err := nightly().Validate(); err != nil {
		t.Fatal(err)
	}
	many := map[string]string{}
	for i := range 63 {
		many[fmt.Sprint("k", i)] = "v"
	}
	for name, tt := range map[string]struct {
		edit        func(*Spec)
		field, want string
	}{
		"neither":         {func(s *Spec) { s.Cron = "" }, "cron", "either"},
		"both":            {func(s *Spec) { s.Every = time.Hour }, "cron", "either"},
		"30 February":     {func(s *Spec) { s.Cron = "0 0 30 2 *" }, "cron", "never"},
		"a long cron":     {func(s *Spec) { s.Cron = strings.Repeat("1,", 200) + "1 * * * *" }, "cron", "limit"},
		"zone":            {func(s *Spec) { s.TimeZone = "Berlin" }, "timeZone", "Europe/Berlin"},
		"the local zone":  {func(s *Spec) { s.TimeZone = "Local" }, "timeZone", "IANA"},
		"a path as zone":  {func(s *Spec) { s.TimeZone = "../../etc/passwd" }, "timeZone", "IANA"},
		"zone of every":   {func(s *Spec) { s.Cron, s.Every = "", time.Hour }, "timeZone", "elapsed"},
		"too often":       {func(s *Spec) { s.Cron, s.TimeZone, s.Every = "", "", time.Second }, "every", "10s"},
		"part of a ms":    {func(s *Spec) { s.Cron, s.TimeZone, s.Every = "", "", time.Hour+1 }, "every", "1ms"},
		"workflow":        {func(s *Spec) { s.Workflow = "" }, "workflow", "workflow"},
		"overlap":         {func(s *Spec) { s.Overlap = "buffer" }, "overlap", "skip, wait, waitAll, cancel and allow"},
		"catch-up":        {func(s *Spec) { s.CatchUp = "none" }, "catchUp", "latest nor all"},
		"window":          {func(s *Spec) { s.CatchUpWindow = 0 }, "catchUpWindow", "1m0s"},
		"jitter":          {func(s *Spec) { s.Jitter = 2 * time.Hour }, "jitter", "1h0m0s"},
		"jitter of every": {func(s *Spec) { s.Cron, s.TimeZone, s.Every, s.Jitter = "", "", time.Minute, time.Minute }, "jitter", "shorter"},
		"until before from": {func(s *Spec) {
			s.FromAt, s.UntilAt = new(time.Unix(2, 0)), new(time.Unix(1, 0))
		}, "until", "before from"},
		"timeout":               {func(s *Spec) { s.Timeout = -1 }, "timeout", "between"},
		"input":                 {func(s *Spec) { s.Input = []byte("{") }, "input", "JSON"},
		"a large input":         {func(s *Spec) { s.Input = make([]byte, 1<<20+1) }, "input", "limit"},
		"attributes":            {func(s *Spec) { s.Attributes = map[string]string{"$schedule": "x"} }, "attributes", "reserved"},
		"too many with its own": {func(s *Spec) { s.Attributes = many }, "attributes", "limit is 64"},
	} {
		s := nightly()
		tt.edit(&s)
		err := s.Validate()
		field, ok := errors.AsType[*entities.FieldError](err)
		if !ok || !errors.Is(err, entities.ErrInvalid) || field.Field != tt.field || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want field %s and %q", name, err, tt.field, tt.want)
		}
	}
}

func TestTicksOfIntervalsAreMultiples(t *testing.T) {
	t.Parallel()
	from := time.Date(2027, 3, 3, 13, 7, 0, 0, time.UTC) // a Wednesday
	for every, want := range map[time.Duration]string{
		15 * time.Minute: "03-03 13:15, 03-03 13:30", 24 * time.Hour: "03-04 00:00, 03-05 00:00",
		7 * 24 * time.Hour: "03-08 00:00, 03-15 00:00", 90 * time.Minute: "03-03 13:30, 03-03 15:00",
	} {
		timing, err := Spec{Every: every}.Timing()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, at := range timing.Upcoming(from, 2) {
			got = append(got, at.Format("01-02 15:04"))
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: got %s, want %s", every, text, want)
		}
	}
}

func TestJitterSpreadsTicksAlikeOnAllServers(t *testing.T) {
	t.Parallel()
	const jitter = 10 * time.Minute
	tick := time.Date(2027, 3, 3, 0, 0, 0, 0, time.UTC)
	var tenths [10]int
	for i := range 1000 {
		s := Schedule{Spec: Spec{Jitter: jitter}, ID: ID(fmt.Sprint("sched_", i))}
		late := s.StartsAt(tick).Sub(tick)
		if late < 0 || late >= jitter || s.StartsAt(tick.Local()).Sub(tick) != late {
			t.Fatalf("schedule %d starts after %s", i, late)
		}
		tenths[late*10/jitter]++
	}
	for i, n := range tenths {
		if n < 50 || n > 150 { // 100 is expected, and 9.5 its standard deviation
			t.Errorf("%d of 1000 start in tenth %d", n, i)
		}
	}
}

func TestRunAttributesHaveTheLocalTime(t *testing.T) {
	t.Parallel()
	s := Schedule{Spec: nightly(), Name: "nightly"}
	got := s.RunAttributes(Tick{At: time.Date(2027, 7, 1, 0, 30, 0, 0, time.UTC)})
	if got[AttributeName] != "nightly" || got[AttributeTick] != "2027-07-01T02:30:00+02:00" {
		t.Errorf("got %v", got)
	}
}

func TestTicksKeepWithinTheirBounds(t *testing.T) {
	t.Parallel()
	at := func(hour, minute int) *time.Time { return new(time.Date(2027, 3, 3, hour, minute, 0, 0, time.UTC)) }
	for name, tt := range map[string]struct {
		spec Spec
		want string
	}{
		"both ends are within": {Spec{Every: time.Hour, FromAt: at(2, 0), UntilAt: at(4, 0)}, "02:00, 03:00, 04:00"},
		"between ticks":        {Spec{Cron: "0 * * * *", FromAt: at(2, 1), UntilAt: at(3, 59)}, "03:00"},
		"no tick":              {Spec{Cron: "0 * * * *", FromAt: at(2, 1), UntilAt: at(2, 59)}, ""},
	} {
		timing, err := tt.spec.Timing()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, tick := range timing.Upcoming(*at(0, 0), 5) {
			got = append(got, tick.Format("15:04"))
		}
		if text := strings.Join(got, ", "); text != tt.want {
			t.Errorf("%s: got %q, want %q", name, text, tt.want)
		}
	}
}
