package cron

import "time"

// monthDays are the days of a month that a field selects.
type monthDays struct {
	days uint64 // a set of days
	// fromLast is a set of distances to the last day of the month.
	fromLast uint64
	// nearest is a set of days whose nearest weekday is selected, and lastWeekday selects the last one of the month.
	nearest     uint64
	lastWeekday bool
	star        bool
}

// weekDays are the days of a week that a field selects, from Sunday as 0.
type weekDays struct {
	days uint64
	// last is a set of weekdays of which the last in the month is selected, and nth has those of which the nth is.
	last uint64
	nth  [6]uint64
	star bool
}

// matchesDay reports whether a date matches the two day fields.
func (e Expression) matchesDay(y int, m time.Month, d int) bool {
	last := time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day()
	weekday := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Weekday()
	inMonth, inWeek := e.monthDays.match(d, last, weekday), e.weekDays.match(d, last, weekday)
	if e.monthDays.star || e.weekDays.star {
		return inMonth && inWeek
	}
	return inMonth || inWeek
}

// match reports whether the field selects the day of a month with so many days.
func (f monthDays) match(day, last int, weekday time.Weekday) bool {
	if f.days>>day&1 == 1 || f.fromLast>>(last-day)&1 == 1 {
		return true
	}
	isNearest := func(n int) bool {
		return nearestWeekday(n, last, (weekday+time.Weekday(n-day)+35)%7) == day
	}
	if f.lastWeekday && isNearest(last) {
		return true
	}
	for n := max(1, day-2); n <= min(last, day+2); n++ {
		if f.nearest>>n&1 == 1 && isNearest(n) {
			return true
		}
	}
	return false
}

// nearestWeekday returns the day from Monday to Friday that is nearest to a day of the same month.
func nearestWeekday(day, last int, weekday time.Weekday) int {
	switch {
	case weekday == time.Saturday && day == 1:
		return day + 2
	case weekday == time.Saturday:
		return day - 1
	case weekday == time.Sunday && day == last:
		return day - 2
	case weekday == time.Sunday:
		return day + 1
	default:
		return day
	}
}

// match reports whether the field selects the day of a month with so many days.
func (f weekDays) match(day, last int, weekday time.Weekday) bool {
	return f.days>>weekday&1 == 1 || f.nth[(day+6)/7]>>weekday&1 == 1 || day+7 > last && f.last>>weekday&1 == 1
}
