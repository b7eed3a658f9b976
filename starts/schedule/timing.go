package schedule

import (
	"time"
	_ "time/tzdata" // a server without the files of its system knows the zones too

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/starts/schedule/cron"
)

// Timing computes the ticks of a schedule.
type Timing struct {
	expression cron.Expression
	zone       *time.Location
	every      time.Duration
	// All ticks are after the one and not after the other; zero for no bound.
	after, until time.Time
}

// Timing returns when the schedule ticks. It fails with an *[entities.FieldError].
func (s Spec) Timing() (Timing, error) {
	t, err := s.unbounded()
	if s.FromAt != nil {
		t.after = s.FromAt.Add(-time.Nanosecond)
	}
	if s.UntilAt != nil {
		t.until = *s.UntilAt
	}
	return t, err
}

// unbounded is [Spec.Timing] without its bounds.
func (s Spec) unbounded() (Timing, error) {
	zone, err := location(s.TimeZone)
	if err != nil {
		return Timing{}, err
	}
	switch {
	case (s.Cron == "") == (s.Every == 0):
		return Timing{}, bad("cron", "give either cron or every")
	case s.Every != 0 && s.TimeZone != "":
		return Timing{}, bad("timeZone", "every is elapsed time, which has no zone: give cron, or no time zone")
	case s.Every != 0 && (s.Every < minEvery || s.Every > maxEvery):
		return Timing{}, bad("every", "%s is not between %s and %s", s.Every, minEvery, maxEvery)
	case s.Every != 0 && s.Every%time.Millisecond != 0:
		return Timing{}, bad("every", "%s is not a multiple of 1ms", s.Every)
	case s.Every != 0:
		return Timing{every: s.Every}, nil
	case len(s.Cron) > maxCron:
		return Timing{}, bad("cron", "it has %d bytes; the limit is %d", len(s.Cron), maxCron)
	}
	expression, err := cron.Parse(s.Cron)
	if err != nil {
		return Timing{}, &entities.FieldError{Field: "cron", Err: err}
	}
	return Timing{expression: expression, zone: zone}, nil
}

// location returns the time zone of the name; UTC for none.
func location(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, bad("timeZone", "%q is not a time zone: give an IANA name, such as Europe/Berlin", name)
	}
	return zone, nil
}

// Next returns the first tick after a time. It reports false if there is none in the next 40 years, or before the end.
func (t Timing) Next(after time.Time) (at time.Time, ok bool) {
	if after.Before(t.after) {
		after = t.after
	}
	if t.every > 0 {
		at, ok = after.UTC().Truncate(t.every).Add(t.every), true
	} else {
		at, ok = t.expression.Next(after, t.zone)
	}
	return at.UTC(), ok && (t.until.IsZero() || !at.After(t.until))
}

// Upcoming returns the next n ticks after a time, or as many as there are.
func (t Timing) Upcoming(after time.Time, n int) []time.Time {
	ticks := make([]time.Time, 0, n)
	for len(ticks) < n {
		at, ok := t.Next(after)
		if !ok {
			break
		}
		ticks, after = append(ticks, at), at
	}
	return ticks
}
