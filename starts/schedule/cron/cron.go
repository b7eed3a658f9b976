// Package cron parses cron expressions and computes when they are due in a time zone, through all changes of its clock.
//
// Libraries agree neither on what an expression may say nor on what happens when clocks are changed: some skip the
// times that do not exist, some run them at once, some run twice. Here one rule says it (see [Expression.Next]), and
// the tests compare 30 zones with a walk over every minute.
package cron

import (
	"math/bits"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

const (
	// maxGap is the longest step forward of a clock in which missing times are made up for. A longer one leaves out a
	// date, as on Samoa on 30 December 2011: that date has no ticks.
	maxGap = 3 * time.Hour
	// aheadOfUTC is more than any zone is ahead of UTC.
	aheadOfUTC = 15 * time.Hour
	// horizon is how far ahead a tick is searched for, in years. The rarest expression that ever matches is a fifth
	// weekday in February: every 28 years, and 40 around a year such as 2100.
	horizon = 40
)

// Expression is a parsed cron expression. It may be used by several goroutines.
type Expression struct {
	minutes, hours, months uint64 // sets of numbers, as bits
	monthDays              monthDays
	weekDays               weekDays
	// recurring says that the minute or the hour has a star: the expression means a distance between ticks, not times of
	// a day.
	recurring bool
}

// Parse parses the five fields of an expression: minute, hour, day of month, month, day of week. Each is a list of
// numbers, ranges and stars, which may have a step: 1,15 or 9-17 or */10. Months and weekdays have names too. The day
// of the month can also be L (the last), L-3, 15W (the weekday nearest to the 15th) or LW; the day of the week 5L (the
// last Friday) or 5#2 (the second). Instead of fields there can be one of @hourly, @daily, @weekly, @monthly and
// @yearly.
//
// As in POSIX, a day that matches one of the two day fields is enough if neither has a star.
//
// It fails with [entities.ErrInvalid], also if the expression never matches, such as on 30 February.
func Parse(text string) (Expression, error) {
	e, err := parse(text)
	if err != nil {
		return Expression{}, err
	}
	if _, ok := e.nextWall(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); !ok {
		return Expression{}, entities.Invalid("cron %q never matches: no month has such a day", text)
	}
	return e, nil
}

// Next returns the first tick after a time. It reports false if there is none in the next 40 years.
//
// An expression that has a star as its minute or hour is due at every minute at which a clock in the zone shows a time
// that matches: not at times that are skipped, and twice at times that the clock shows twice. All others are due when
// the clock shows a matching time or a later one for the first time: at the first instant after times that are skipped,
// and once at times that the clock shows twice.
func (e Expression) Next(after time.Time, zone *time.Location) (time.Time, bool) {
	if e.recurring {
		return e.nextMinute(after, zone)
	}
	for wall := wallClock(after, zone).Truncate(time.Minute); ; {
		var ok bool
		if wall, ok = e.nextWall(wall.Add(time.Minute)); !ok {
			return time.Time{}, false
		}
		if t, ok := firstShown(wall, zone); ok && t.After(after) {
			return t, true
		}
	}
}

// nextMinute returns the first minute after a time at which a clock in the zone shows a time that matches. It goes
// through the periods in which the zone keeps its distance to UTC.
func (e Expression) nextMinute(after time.Time, zone *time.Location) (time.Time, bool) {
	from := after.Add(1)
	for {
		offset, _, end := period(from, zone)
		wall, ok := e.nextWall(ceilMinute(from.Add(offset).UTC()))
		if !ok {
			return time.Time{}, false
		}
		if t := wall.Add(-offset); end.IsZero() || t.Before(end) {
			return t, true
		}
		from = end
	}
}

// firstShown returns when a clock in the zone shows the wall time or a later one for the first time. It reports false
// if the clock skips the whole date.
func firstShown(wall time.Time, zone *time.Location) (time.Time, bool) {
	for t := wall.Add(-aheadOfUTC); ; {
		offset, start, end := period(t, zone)
		shown := wall.Add(-offset)
		if !start.IsZero() && shown.Before(start) {
			before, _, _ := period(start.Add(-1), zone)
			return start, offset-before <= maxGap
		}
		if end.IsZero() || shown.Before(end) {
			return shown, true
		}
		t = end
	}
}

// period returns how far the zone is ahead of UTC at a time, since when and until when; zero for always.
func period(t time.Time, zone *time.Location) (offset time.Duration, start, end time.Time) {
	local := t.In(zone)
	_, seconds := local.Zone()
	start, end = local.ZoneBounds()
	return time.Duration(seconds) * time.Second, start.UTC(), end.UTC()
}

// wallClock returns what a clock in the zone shows, as a time in UTC.
func wallClock(t time.Time, zone *time.Location) time.Time {
	_, seconds := t.In(zone).Zone()
	return t.Add(time.Duration(seconds) * time.Second).UTC()
}

func ceilMinute(t time.Time) time.Time {
	if floor := t.Truncate(time.Minute); floor.Before(t) {
		return floor.Add(time.Minute)
	}
	return t
}

// nextWall returns the first wall time from the given full minute on that matches, in a calendar without time zones.
func (e Expression) nextWall(t time.Time) (time.Time, bool) {
	for end := t.AddDate(horizon, 0, 0); t.Before(end); {
		y, m, d := t.Date()
		switch minute := bits.TrailingZeros64(e.minutes >> t.Minute()); {
		case e.months>>m&1 == 0:
			t = time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)
		case !e.matchesDay(y, m, d):
			t = time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
		case e.hours>>t.Hour()&1 == 0 || minute == 64:
			t = t.Truncate(time.Hour).Add(time.Hour)
		default:
			return t.Add(time.Duration(minute) * time.Minute), true
		}
	}
	return time.Time{}, false
}
