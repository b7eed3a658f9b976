package cron

import (
	"strconv"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
)

// shorthands are the names of common expressions.
var shorthands = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
	"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}

// field says which numbers a field of an expression may have.
type field struct {
	name     string
	min, max int
	// names are names of the numbers from min on.
	names []string
}

var (
	minuteField   = field{name: "minute", max: 59}
	hourField     = field{name: "hour", max: 23}
	monthDayField = field{name: "day of month", min: 1, max: 31}
	monthField    = field{name: "month", min: 1, max: 12, names: []string{
		"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
	}}
	weekDayField = field{name: "day of week", max: 7, names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}}
)

const sunday = 7 // is also 0

func parse(text string) (e Expression, err error) {
	words := strings.Fields(text)
	if len(words) == 1 && strings.HasPrefix(words[0], "@") {
		words = strings.Fields(shorthands[strings.ToLower(words[0])])
	}
	if len(words) != 5 {
		return e, entities.Invalid("cron %q has %d fields: give minute, hour, day of month, month and day of week, "+
			"or one of @hourly, @daily, @weekly, @monthly and @yearly", text, len(strings.Fields(text)))
	}
	var minuteStar, hourStar bool
	for i, parseField := range []func(string) error{
		func(s string) error { return minuteField.parse(s, &e.minutes, &minuteStar, nil) },
		func(s string) error { return hourField.parse(s, &e.hours, &hourStar, nil) },
		e.monthDays.parse,
		func(s string) error { return monthField.parse(s, &e.months, new(bool), nil) },
		e.weekDays.parse,
	} {
		if err := parseField(strings.ToUpper(words[i])); err != nil {
			return e, err
		}
	}
	e.recurring = minuteStar || hourStar
	return e, nil
}

func (f *monthDays) parse(text string) error {
	return monthDayField.parse(text, &f.days, &f.star, func(item string) (bool, error) {
		if item == "L" {
			f.fromLast |= 1
			return true, nil
		}
		if item == "LW" {
			f.lastWeekday = true
			return true, nil
		}
		if before, ok := strings.CutPrefix(item, "L-"); ok {
			n, err := field{name: "days before the last", min: 1, max: 30}.number(before)
			f.fromLast |= 1 << n
			return true, err
		}
		if near, ok := strings.CutSuffix(item, "W"); ok {
			n, err := monthDayField.number(near)
			f.nearest |= 1 << n
			return true, err
		}
		return false, nil
	})
}

func (f *weekDays) parse(text string) error {
	err := weekDayField.parse(text, &f.days, &f.star, func(item string) (bool, error) {
		if day, nth, ok := strings.Cut(item, "#"); ok {
			d, err := weekDayField.number(day)
			if err != nil {
				return true, err
			}
			n, err := field{name: "number of a weekday in its month", min: 1, max: 5}.number(nth)
			f.nth[n] |= 1 << (d % sunday)
			return true, err
		}
		if day, ok := strings.CutSuffix(item, "L"); ok {
			d, err := weekDayField.number(day)
			f.last |= 1 << (d % sunday)
			return true, err
		}
		return false, nil
	})
	f.days = (f.days | f.days>>sunday) &^ (1 << sunday)
	return err
}

// parse adds the numbers that a field lists to the set, and sets star if it has one. Special, which may be nil, is
// asked first about each item: it reports whether it knows the item.
func (f field) parse(text string, set *uint64, star *bool, special func(item string) (bool, error)) error {
	for item := range strings.SplitSeq(text, ",") {
		if special != nil {
			if known, err := special(item); known || err != nil {
				if err != nil {
					return err
				}
				continue
			}
		}
		base, stepText, stepped := strings.Cut(item, "/")
		from, to, err := f.bounds(base, stepped)
		if err != nil {
			return err
		}
		step := 1
		if stepped {
			if step, err = (field{name: "step of " + f.name, min: 1, max: f.max}).number(stepText); err != nil {
				return err
			}
		}
		*star = *star || base == "*" || base == "?"
		for n := from; n <= to; n += step {
			*set |= 1 << n
		}
	}
	return nil
}

// bounds returns the first and the last number of an item without its step. With a step, a single number begins a range
// that goes on to the end.
func (f field) bounds(base string, stepped bool) (from, to int, err error) {
	if base == "*" || base == "?" {
		return f.min, f.max, nil
	}
	first, last, isRange := strings.Cut(base, "-")
	if from, err = f.number(first); err != nil {
		return 0, 0, err
	}
	switch {
	case isRange:
		if to, err = f.number(last); err != nil {
			return 0, 0, err
		}
		if f.max == sunday && to == 0 && from > 0 {
			to = sunday // FRI-SUN
		}
	case stepped:
		to = f.max
	default:
		to = from
	}
	if from > to {
		return 0, 0, entities.Invalid("cron: the range %q of the %s goes backwards: write it as two ranges", base, f.name)
	}
	return from, to, nil
}

// number parses one number or name.
func (f field) number(text string) (int, error) {
	for i, name := range f.names {
		if text == name {
			return f.min + i, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < f.min || n > f.max || text[0] == '+' || text[0] == '-' {
		if len(f.names) > 0 {
			return 0, entities.Invalid("cron: %s %q is not a number from %d to %d or a name from %s to %s",
				f.name, text, f.min, f.max, f.names[0], f.names[len(f.names)-1])
		}
		return 0, entities.Invalid("cron: %s %q is not a number from %d to %d", f.name, text, f.min, f.max)
	}
	return n, nil
}
