package wire_test

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// The tests write and read the format without package codec, so that an error in it cannot cancel itself out. Only
// whole values are encoded with it.

// field is an entry of a frame's metadata, in the order in which a client writes it.
type field struct {
	key   string
	value any
}

// undefined is the JavaScript value of a missing field.
var undefined = codec.Raw{0xf7}

// meta encodes fields as cbor-x does: maps always have 16-bit lengths. Of two fields with the same key the later wins.
func meta(t *testing.T, fields ...field) []byte {
	t.Helper()
	for i := len(fields) - 1; i >= 0; i-- {
		same := func(f field) bool { return f.key == fields[i].key }
		if j := slices.IndexFunc(fields, same); j < i {
			fields = slices.Delete(slices.Clone(fields), j, j+1)
			i--
		}
	}
	data := binary.BigEndian.AppendUint16([]byte{0xb9}, uint16(len(fields)))
	for _, f := range fields {
		data = append(data, encode(t, f.key)...)
		data = append(data, encode(t, f.value)...)
	}
	return data
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	switch v := v.(type) {
	case []field:
		return meta(t, v...)
	case codec.Raw:
		return v
	case time.Time:
		return encode(t, codec.NewTime(v))
	}
	return check.Value(codec.Marshal(v))(t)
}

func frame(t *testing.T, meta, body []byte) []byte {
	t.Helper()
	data := binary.BigEndian.AppendUint32(nil, uint32(len(meta)))
	data = binary.BigEndian.AppendUint32(append(data, meta...), uint32(len(body)))
	return append(data, body...)
}

// decode decodes CBOR into plain Go values. Only tagged dates become time.Time.
func decode(t *testing.T, data []byte) any {
	t.Helper()
	mode := check.Value(cbor.DecOptions{DefaultMapType: reflect.TypeFor[map[string]any]()}.DecMode())(t)
	var v any
	if err := mode.Unmarshal(data, &v); err != nil {
		t.Fatalf("decode %x: %v", data, err)
	}
	return exact(v)
}

// exact removes the rounding error of dates in float seconds, which is below a microsecond.
func exact(v any) any {
	switch v := v.(type) {
	case time.Time:
		return v.Round(time.Microsecond)
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = exact(v[key])
		}
	}
	return v
}

// cbor decodes a CBOR body.
func (a answer) cbor(t *testing.T) map[string]any {
	t.Helper()
	if got := a.header.Get("Content-Type"); got != "application/cbor" {
		t.Fatalf("Content-Type: got %q, want application/cbor; status %d, body %s", got, a.status, a.body)
	}
	return decode(t, a.body).(map[string]any)
}

// event is a decoded frame of an answer.
type event struct {
	meta map[string]any
	body string
}

// frames decodes all frames of an answer.
func (a answer) frames(t *testing.T) []event {
	t.Helper()
	if got := a.header.Get("Content-Type"); got != "application/vnd.workflow.v4-frames" {
		t.Fatalf("Content-Type: got %q; status %d, body %s", got, a.status, a.body)
	}
	var list []event
	next := func(rest []byte) (item, after []byte) {
		if len(rest) < 4 || len(rest)-4 < int(binary.BigEndian.Uint32(rest)) {
			t.Fatalf("frame cut short: %x", rest)
		}
		n := 4 + int(binary.BigEndian.Uint32(rest))
		return rest[4:n], rest[n:]
	}
	for rest := a.body; len(rest) > 0; {
		var meta, body []byte
		meta, rest = next(rest)
		body, rest = next(rest)
		list = append(list, event{decode(t, meta).(map[string]any), string(body)})
	}
	return list
}

// list decodes the frames of a list and its sentinel.
func (a answer) list(t *testing.T) (events []event, end map[string]any) {
	t.Helper()
	events = a.frames(t)
	if len(events) == 0 {
		t.Fatal("list without a sentinel")
	}
	last := events[len(events)-1]
	if last.meta["_end"] != uint64(1) || last.body != "" {
		t.Fatalf("last frame: got %v, want the sentinel", last)
	}
	return events[:len(events)-1], last.meta
}

// problem is the body of an error response.
type problem struct {
	Message string `json:"message"`
	Code    string `json:"code"`
}

// wantProblem checks that an answer is an error in the form that clients read (protocol §1.5).
func wantProblem(t *testing.T, got answer, status int, code string) problem {
	t.Helper()
	var p problem
	decoder := json.NewDecoder(bytes.NewReader(got.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		t.Errorf("status %d: body %q is no error: %v", got.status, got.body, err)
	}
	if !strings.HasPrefix(got.header.Get("Content-Type"), "application/json") {
		t.Errorf("Content-Type: got %q, want application/json", got.header.Get("Content-Type"))
	}
	if got.status != status || p.Code != code || p.Message == "" {
		t.Errorf("got %d %+v, want %d with code %s and a message", got.status, p, status, code)
	}
	return p
}

func wantStatus(t *testing.T, got answer, status int) {
	t.Helper()
	if got.status != status {
		t.Fatalf("got %d %s, want %d", got.status, got.body, status)
	}
}

// ids generates monotonic IDs. The process-wide generator restarts with every new time, and the server shares it.
var ids = &ulid.LockedMonotonicReader{MonotonicReader: ulid.Monotonic(rand.Reader, 0)}

// newID returns an ID as clients make it, with the time t0.
func newID(prefix string) string {
	return prefix + ulid.MustNew(ulid.Timestamp(t0), ids).String()
}

// eventID returns the ID of the event at a position.
func eventID(seq int) string {
	const zeros = "evnt_00000000000000000000000000"
	digits := []byte(zeros)
	for i := len(digits) - 1; seq > 0; i-- {
		digits[i] = byte('0' + seq%10)
		seq /= 10
	}
	return string(digits)
}
