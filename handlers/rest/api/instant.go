package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Instant is a time in a request, with any offset. The zero time is a field that is missing.
type Instant struct{ time.Time }

// InstantOf returns an optional time as a field.
func InstantOf(t *time.Time) (i Instant) {
	if t != nil {
		i = Instant{t.UTC()}
	}
	return i
}

// UnmarshalJSON implements [json.Unmarshaler].
func (i *Instant) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil || string(data) == "null" {
		return errors.New("want a time like \"2026-11-21T01:41:43.197Z\"")
	}
	t, err := ParseTime(s)
	i.Time = t
	return err
}

// ParseTime returns the time that a text in a request says.
func ParseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.UTC().Year() < 1 || t.UTC().Year() > 9999 {
		return time.Time{}, fmt.Errorf("%q is not a time like 2026-11-21T01:41:43.197Z", s)
	}
	return t.UTC(), nil
}
