package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// eventMeta is a wire struct like those of handlers.
type eventMeta struct {
	EventType        string `cbor:"eventType"`
	SpecVersion      Int    `cbor:"specVersion"`
	OccurredAt       Time   `cbor:"occurredAt"`
	CorrelationID    string `cbor:"correlationId"`
	VercelID         string `cbor:"vercelId"`
	ResumeAt         *Time  `cbor:"resumeAt"`
	RetryAfter       *Time  `cbor:"retryAfter"`
	StateUpdatedAt   *Int   `cbor:"stateUpdatedAt"`
	HookIsWebhook    *bool  `cbor:"hookIsWebhook"`
	ExecutionContext Raw    `cbor:"executionContext"`
	Attributes       Map    `cbor:"attributes"`
}

func ptr[T any](v T) *T { return &v }

func TestUnmarshalMeta(t *testing.T) {
	t.Parallel()
	data := loadVectors(t).value(t, "meta")
	var got eventMeta
	if err := Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	want := eventMeta{
		EventType: "wait_created", SpecVersion: 3, OccurredAt: date(1795225268528), CorrelationID: "wait_1",
		ResumeAt: ptr(date(1795225300000)), StateUpdatedAt: ptr(Int(1763000000000)), HookIsWebhook: ptr(true),
		// {traceCarrier: {}, features: {encryption: false}} with the 16-bit map lengths it came with
		ExecutionContext: unhex(t, "b900026c747261636543617272696572b90000686665617475726573b900016a656e6372797074696f6ef4"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var all Map
	if err := Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	if _, ok := all["vercelId"]; ok || len(all) != 10 {
		t.Errorf("got %d keys, with vercelId: %v; want 10 without, as it is undefined", len(all), ok)
	}
	if got, want := all["someday"], unhex(t, "8201b9000161781b0000000000000002"); !bytes.Equal(got, want) {
		t.Errorf("unknown key: got %x, want %x", got, want)
	}
}

// TestUnmarshalValues decodes values that cbor-x wrote, and other accepted forms, into each type.
func TestUnmarshalValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string // of a vector, or of hex
		hex  string
		want any
	}{
		{"zero", "", Int(0)},
		{"minInt32", "", Int(-1 << 31)},
		{"belowInt32", "", Int(-1<<31 - 1)},
		{"aboveUint32", "", Int(1 << 32)},
		{"stateUpdatedAt", "", Int(1763000000000)},
		{"maxSafe", "", Int(maxSafe - 1)},
		{"bigInt", "", Int(5)},
		{"bigIntNegative", "", Int(-5)},
		{"undefined", "", Int(0)},
		{"null", "", Int(0)},
		{"HalfFloatInteger", "f94000", Int(2)},
		{"NonMinimalInteger", "1900ff", Int(255)},
		{"fraction", "", 1.5},
		{"zero", "", 0.0},
		{"epoch", "", date(0)},
		{"wholeSecond", "", date(1e12)},
		{"milliseconds", "", date(1795225268528)},
		{"beforeEpoch", "", date(-1)},
		{"afterUint32", "", date(1 << 32 * 1000)},
		{"year9999", "", NewTime(time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC))},
		{"SmallDate", "c101", date(1000)},
		{"NegativeDate", "c120", date(-1000)},
		{"NonMinimalTag", "d80101", date(1000)},
		{"HalfFloatDate", "c1f93e00", date(1500)},
		{"RoundedDate", "c1fb3fffffbe76c8b439", date(2000)},
		{"TextDate", "c07818323032362d31312d32315430313a34313a30382e3532385a", date(1795225268528)},
		{"null", "", Time{}},
		{"uint8Array", "", Bytes{1, 2}},
		{"buffer", "", Bytes{1, 2}},
		{"emptyUint8Array", "", Bytes{}},
		{"undefined", "", Bytes(nil)},
		{"NonMinimalBytes", "5b0000000000000001ff", Bytes{0xff}},
		{"emoji", "", "😀"},
		{"surrogateShort", "", "cut \ufffd"},
		{"surrogateLong", "", strings.Repeat("x", 70) + "\ufffd"},
		{"undefined", "", ""},
		{"undefined", "", Raw(nil)},
		{"null", "", Raw{itemNull}},
		{"withUndefined", "", map[string]*Int{"a": nil, "b": ptr(Int(1)), "c": nil}},
		{"withUndefined", "", Map{"b": {1}, "c": {itemNull}}},
		{"undefined", "", Map(nil)},
		{"IndefiniteMap", "bf61619f01ffff", map[string][]Int{"a": {1}}},
		{"set", "", []any{uint64(1), "a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			data := unhex(t, c.hex)
			if c.hex == "" {
				data = loadVectors(t).value(t, c.name)
			}
			before := bytes.Clone(data)
			got := reflect.New(reflect.TypeOf(c.want))
			if err := Unmarshal(data, got.Interface()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got.Elem().Interface()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if !bytes.Equal(data, before) {
				t.Error("the input was changed")
			}
		})
	}
}

// TestUnmarshalRejects covers malformed, hostile and mismatching input.
func TestUnmarshalRejects(t *testing.T) {
	t.Parallel()
	vs := loadVectors(t)
	nest := func(n int) string { return strings.Repeat("81", n) + "00" }
	for name, c := range map[string]struct {
		hex  string
		into any
	}{
		"Empty":             {"", new(Raw)},
		"JSON":              {"7b2261223a317d", new(Raw)}, // {"a":1}: how queue bodies are told apart
		"TrailingBytes":     {"0000", new(Raw)},
		"CutHead":           {"19ff", new(Raw)},
		"CutText":           {"6261", new(Raw)},
		"HugeString":        {"5bffffffffffffffff", new(Raw)},
		"HugeArray":         {"9b00000000ffffffff", new(Raw)},
		"HugerArray":        {"9bffffffffffffffff", new(Raw)},
		"LongArray":         {"9affff00", new(Raw)},
		"BigMap":            {"b90002616100", new(Raw)},
		"OpenArray":         {"9f01", new(Raw)},
		"OddMap":            {"bf6161ff", new(Raw)},
		"StrayBreak":        {"ff", new(Raw)},
		"ReservedInfo":      {"1c", new(Raw)},
		"IndefiniteInteger": {"1f", new(Raw)},
		"TooDeep":           {nest(maxDepth + 1), new(Raw)},
		"TooDeepTags":       {strings.Repeat("d9010281", maxDepth/2+1) + "00", new(Raw)},
		"DuplicateKey":      {"a2616101616102", new(Raw)},
		"DuplicateNested":   {"a16178a2616101616102", new(map[string]any)},
		"DuplicateInMap":    {"d90103a2616101616102", new(map[string]Int)},
		"BadUTF8":           {"61ff", new(Raw)},
		"BadUTF8Key":        {"a161ff00", new(Raw)},
		"SurrogateCut":      {"62eda0", new(Raw)},
		"HugeInteger":       {"1b0020000000000001", new(Int)},
		"HugeNegative":      {"3b0020000000000000", new(Int)},
		"HugeFloat":         {"fb4340000000000001", new(Int)},
		"Fraction":          {"fb3ff8000000000000", new(Int)},
		"InfiniteInteger":   {"fb7ff0000000000000", new(Int)},
		"TextAsInteger":     {"6131", new(Int)},
		"IntegerAsDate":     {"00", new(Time)},
		"BytesAsDate":       {"40", new(Time)},
		"BadTextDate":       {"c06161", new(Time)},
		"YearZero":          {"c1fbc22cef2ffd800000", new(Time)},
		"YearTooBig":        {"c1fb424d7ffa20c00000", new(Time)},
		"InfiniteDate":      {"c1fb7ff0000000000000", new(Time)},
		"TextAsBytes":       {"6161", new(Bytes)},
		"ArrayAsBytes":      {"8101", new(Bytes)},
		"BytesAsText":       {"4161", new(string)},
		"NumberAsText":      {"a1696576656e745479706500", new(eventMeta)},
		"ArrayAsMap":        {"80", new(Map)},
		"MapKeyAsObject":    {"d90103a10001", new(Map)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkRejected(t, unhex(t, c.hex), c.into)
		})
	}
	for _, name := range []string{"error", "regexp", "uint16Array", "bigIntHuge"} {
		t.Run(name, func(t *testing.T) { t.Parallel(); checkRejected(t, vs.value(t, name), new(Raw)) })
	}
	t.Run("invalidDate", func(t *testing.T) { t.Parallel(); checkRejected(t, vs.value(t, "invalidDate"), new(Time)) })
	for text, js := range vs.Reads {
		if strings.HasPrefix(js, "throws") { // it would throw on every client that reads it back
			t.Run(text, func(t *testing.T) { t.Parallel(); checkRejected(t, unhex(t, text), new(Raw)) })
		}
	}
}

func checkRejected(t *testing.T, data []byte, into any) {
	t.Helper()
	err := Unmarshal(data, into)
	var own *Error
	if !errors.Is(err, ErrMalformed) || !errors.As(err, &own) || own.Reason == "" {
		t.Errorf("got %v, error %v, want ErrMalformed with a reason", into, err)
	}
	if err != nil && strings.Contains(err.Error(), "Go ") {
		t.Errorf("%q talks about Go to a client", err)
	}
}

func TestUnmarshalAcceptsMaxDepth(t *testing.T) {
	t.Parallel()
	data := unhex(t, strings.Repeat("81", maxDepth)+"00")
	var got any
	if err := Unmarshal(data, &got); err != nil {
		t.Error(err)
	}
}

// TestUnmarshalManyKeys ensures that duplicates are found among many keys too, and quickly.
func TestUnmarshalManyKeys(t *testing.T) {
	t.Parallel()
	many := map[string]int{}
	for i := range 50_000 {
		many[keyOf(i)] = i
	}
	data, err := Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]Int
	if err := Unmarshal(data, &back); err != nil || len(back) != len(many) {
		t.Fatalf("got %d keys, error %v, want %d", len(back), err, len(many))
	}
	twice := append(appendHead(nil, majorMap, uint64(len(many)+1)), data[3:]...)
	key, _ := Marshal(keyOf(49_999))
	twice = append(append(twice, key...), 0)
	checkRejected(t, twice, &back)
}

// keyOf returns the i-th key of a map with many keys.
func keyOf(i int) string { return strings.Repeat("k", 1+i%7) + date(int64(i)).String() }

// TestUnmarshalRejectsUnsuitableTargets covers mistakes in wire structs, which are not the client's fault.
func TestUnmarshalRejectsUnsuitableTargets(t *testing.T) {
	t.Parallel()
	type list struct {
		Next *list
		N    Int
		skip int
		Skip int `cbor:"-"`
	}
	for name, c := range map[string]struct {
		into any
		want string
	}{
		"OK":      {&list{skip: 1}, ""},
		"Nil":     {nil, "pointer"},
		"Value":   {Int(0), "pointer"},
		"Integer": {new(struct{ A []map[string]uint8 }), "field A: use codec.Int for uint8"},
		"GoBytes": {new(struct{ A *[]byte }), "field A: use codec.Bytes"},
		"GoTime":  {new(struct{ A struct{ B time.Time } }), "field A: field B: use codec.Time"},
		"JSON":    {new(json.RawMessage), "codec.Bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 2 { // the second time from the cache
				err := Unmarshal([]byte{0xa0}, c.into)
				switch {
				case c.want == "" && err != nil:
					t.Errorf("got %v, want no error", err)
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrMalformed)):
					t.Errorf("got %v, want an error about %q", err, c.want)
				}
			}
		})
	}
}

// TestRawOwnsItsBytes ensures that decoded values do not alias the request's buffer.
func TestRawOwnsItsBytes(t *testing.T) {
	t.Parallel()
	data := unhex(t, "a16161420102")
	var raw struct {
		A Raw `cbor:"a"`
	}
	var body struct {
		A Bytes `cbor:"a"`
	}
	for _, v := range []any{&raw, &body} {
		if err := Unmarshal(data, v); err != nil {
			t.Fatal(err)
		}
	}
	clear(data)
	if want := (Raw{0x42, 1, 2}); !bytes.Equal(raw.A, want) || !bytes.Equal(body.A, Bytes{1, 2}) {
		t.Errorf("got %x and %x", raw.A, body.A)
	}
}
