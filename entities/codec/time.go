package codec

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// Time is a time in the protocol: UTC with millisecond precision, in the years 1 to 9999. The zero Time means no time;
// optional fields need ",omitzero". Times are comparable with ==.
type Time struct{ t time.Time }

// NewTime truncates t to milliseconds, the precision of the protocol (protocol §10, 12).
func NewTime(t time.Time) Time { return Time{t.Truncate(time.Millisecond).UTC()} }

// Time returns t as a time.Time in UTC.
func (t Time) Time() time.Time { return t.t }

// IsZero reports whether t is the zero Time. It makes ",omitzero" work.
func (t Time) IsZero() bool { return t.t.IsZero() }

// Equal reports whether t and u are the same time.
func (t Time) Equal(u Time) bool { return t.t.Equal(u.t) }

// String formats t as in RFC 3339.
func (t Time) String() string { return t.t.Format(time.RFC3339Nano) }

var errZeroTime = errors.New("zero codec.Time: an optional date needs omitzero")

// MarshalCBOR encodes t as cbor-x encodes a Date: tag 1 with 32-bit whole seconds, or with float seconds where those do
// not fit. The float is exact to the millisecond for all years of a Time.
func (t Time) MarshalCBOR() ([]byte, error) {
	if t.IsZero() {
		return nil, errZeroTime
	}
	return t.appendTo(make([]byte, 0, 10)), nil
}

// appendTo appends a time that is not zero.
func (t Time) appendTo(dst []byte) []byte {
	ms := t.t.UnixMilli()
	dst = appendHead(dst, majorTag, tagDate)
	if sec := ms / 1000; ms%1000 == 0 && sec >= 0 && sec <= math.MaxUint32 {
		return binary.BigEndian.AppendUint32(append(dst, majorUint<<5|infoFourBytes), uint32(sec))
	}
	return appendFloat(dst, float64(ms)/1000)
}

// UnmarshalCBOR decodes a date: tag 1 with seconds, rounded to the millisecond, or tag 0 with RFC 3339 text. It ignores
// null and undefined.
func (t *Time) UnmarshalCBOR(data []byte) error {
	if isNil(data) {
		return nil
	}
	h, err := parseHead(data)
	if err != nil {
		return malformed("%v", err)
	}
	if h.major != majorTag || h.arg != tagDate && h.arg != tagDateText {
		return malformed("not a date where one is expected")
	}
	read := secondsTime
	if h.arg == tagDateText {
		read = textTime
	}
	u, err := read(data[h.size:])
	if err != nil {
		return err
	}
	if y := u.t.Year(); u.IsZero() || y < 1 || y > 9999 {
		return malformed("date outside the years 1 to 9999")
	}
	*t = u
	return nil
}

// secondsTime decodes seconds since 1970.
func secondsTime(data []byte) (Time, error) {
	var sec float64
	if err := decMode.Unmarshal(data, &sec); err != nil {
		return Time{}, mismatch(err)
	}
	ms := math.Round(sec * 1000)
	if math.IsNaN(ms) || math.Abs(ms) > maxSafe {
		return Time{}, malformed("date of %v seconds", sec)
	}
	return Time{time.UnixMilli(int64(ms)).UTC()}, nil
}

// textTime decodes RFC 3339 text.
func textTime(data []byte) (Time, error) {
	var text string
	if err := decMode.Unmarshal(data, &text); err != nil {
		return Time{}, mismatch(err)
	}
	u, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return Time{}, &Error{Kind: ErrMalformed, Reason: "date is not RFC 3339", Cause: err}
	}
	return NewTime(u), nil
}
