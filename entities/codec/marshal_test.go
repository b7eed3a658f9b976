package codec

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// emission is a Go value, its expected encoding, and the value that cbor-x must decode from that.
type emission struct {
	name string
	v    any
	hex  string
	js   string
}

type optional struct {
	Input  Bytes             `cbor:"input,omitzero"`
	At     Time              `cbor:"at,omitzero"`
	Ctx    Raw               `cbor:"ctx,omitzero"`
	Cursor *string           `cbor:"cursor"`
	Data   []Int             `cbor:"data"`
	Attrs  map[string]string `cbor:"attrs"`
	N      Int               `cbor:"n,omitempty"`
}

func date(ms int64) Time { return NewTime(time.UnixMilli(ms)) }

// emissions follow protocol §2.1 "What clients accept" and, where there is a vector, cbor-x's own encoding of the same
// value.
func emissions(t testing.TB) []emission {
	t.Helper()
	context := loadVectors(t).value(t, "set")
	return []emission{
		{"Zero", 0, "00", "0"},
		{"MaxUint32", uint32(math.MaxUint32), "1affffffff", "4294967295"},
		{"AboveUint32", int64(1) << 32, "fb41f0000000000000", "4294967296"},
		{"StateUpdatedAt", Int(1763000000000), "fb4279a7afd1e00000", "1763000000000"},
		{"MaxSafe", uint64(maxSafe), "fb4340000000000000", "9007199254740992"},
		{"MinInt32", math.MinInt32, "3a7fffffff", "-2147483648"},
		{"BelowInt32", math.MinInt32 - 1, "fbc1e0000000200000", "-2147483649"},
		{"MinSafe", int64(-maxSafe), "fbc340000000000000", "-9007199254740992"},
		{"Fraction", 1.5, "fb3ff8000000000000", "1.5"},
		{"NaN", math.NaN(), "fb7ff8000000000001", "NaN"},
		{"Inf", math.Inf(1), "fb7ff0000000000000", "Infinity"},
		{"IntegerKeys", map[uint64]bool{1 << 33: true}, "a1fb4200000000000000f5", "{8589934592: true}"},
		{"Epoch", date(0), "c11a00000000", "Date(0)"},
		{"WholeSecond", date(1e12), "c11a3b9aca00", "Date(1000000000000)"},
		{"Milliseconds", date(1795225268528), "c1fb41dac03dad21cac1", "Date(1795225268528)"},
		{"BelowMillisecond", NewTime(time.Unix(1, 999_999_999)), "c1fb3ffffbe76c8b4396", "Date(1999)"},
		{"BeforeEpoch", date(-1), "c1fbbf50624dd2f1a9fc", "Date(-1)"},
		{"AfterUint32", date(1 << 32 * 1000), "c1fb41f0000000000000", "Date(4294967296000)"},
		{"OtherZone", NewTime(time.UnixMilli(1000).In(time.FixedZone("", 3600))), "c11a00000001", "Date(1000)"},
		{"Bytes", Bytes{1, 2}, "420102", "bytes(0102)"},
		{"Text", "é", "62c3a9", `"é"`},
		{"BadText", "a\xff", "6461efbfbd", "\"a\ufffd\""},
		{"Null", nil, "f6", "null"},
		{"SortedMap", map[string]Int{"b": 1, "a": 2, "aa": 3}, "a361610261620162616103", "{a: 2, b: 1, aa: 3}"},
		{"Absent", optional{}, "a3646461746180656174747273a066637572736f72f6", "{data: [], attrs: {}, cursor: null}"},
		{"Raw", []Raw{context, nil}, "82" + hex.EncodeToString(context) + "f7", `[Set[1, "a"], undefined]`},
		{"RawBigInt", Map{"x": unhex(t, "1b0000000000000005")}, "a161781b0000000000000005", "{x: 5n}"},
		{"Sentinel", endMeta{End: 1, Next: "c"}, "a3645f656e6401646e6578746163676861734d6f7265f4",
			`{_end: 1, next: "c", hasMore: false}`},
	}
}

//nolint:paralleltest // with -update it writes the file that the others read
func TestMarshal(t *testing.T) {
	vs := loadVectors(t)
	var emitted []string
	for _, e := range emissions(t) {
		t.Run(e.name, func(t *testing.T) {
			got, err := Marshal(e.v)
			if err != nil {
				t.Fatal(err)
			}
			text := hex.EncodeToString(got)
			emitted = append(emitted, text)
			if text != e.hex {
				t.Errorf("got %s, want %s", text, e.hex)
			}
			if js := vs.Reads[text]; js != e.js && !*update {
				t.Errorf("cbor-x reads %s, want %s", js, e.js)
			}
		})
	}
	if *update {
		data, err := json.MarshalIndent(emitted, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("testdata/emitted.json", append(data, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMarshalLikeCBORX compares with cbor-x's own encoding of the same value.
func TestMarshalLikeCBORX(t *testing.T) {
	t.Parallel()
	vs := loadVectors(t)
	for name, v := range map[string]any{
		"zero": 0, "minusOne": -1, "minInt32": math.MinInt32, "belowInt32": int64(math.MinInt32) - 1,
		"maxUint32": uint64(math.MaxUint32), "aboveUint32": uint64(1 << 32), "stateUpdatedAt": 1763000000000,
		"maxSafe": int64(maxSafe - 1), "fraction": 1.5, "null": nil, "buffer": Bytes{1, 2}, "emoji": "😀",
		"epoch": date(0), "wholeSecond": date(1e12), "milliseconds": date(1795225268528), "beforeEpoch": date(-1),
		"lastUint32Second": date(math.MaxUint32 * 1000), "afterUint32": date(1 << 32 * 1000),
		"year9999": NewTime(time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)),
		"context":  Raw(vs.value(t, "context")), "undefined": Raw(nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if want := vs.value(t, name); !bytes.Equal(got, want) {
				t.Errorf("got %x, want %x", got, want)
			}
		})
	}
}

// TestMarshalRejects covers mistakes in wire structs.
func TestMarshalRejects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		v    any
		want string
	}{
		"GoTime":     {time.Now(), "codec.Time"},
		"GoTimeDeep": {map[string]any{"a": []any{time.Now()}}, "codec.Time"},
		"ZeroTime":   {struct{ At Time }{}, "omitzero"},
		"Huge":       {uint64(maxSafe + 1), "2^53"},
		"HugeMinus":  {int64(-maxSafe - 1), "2^53"},
		"ForeignTag": {cbor.Tag{Number: 64, Content: []byte{1}}, "codec.Raw"},
		"ForeignRaw": {cbor.RawMessage{0xd8, 0x40, 0x41, 0x01}, "codec.Raw"},
		"BrokenRaw":  {Raw{0x61}, "malformed"},
		"PoisonRaw":  {Raw{0x7f, 0x61, 0x61, 0xff}, "indefinite"},
		"Channel":    {make(chan int), "chan"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Marshal(c.v)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %x, error %v, want an error about %q", got, err, c.want)
			}
		})
	}
}

var errPipe = errors.New("broken pipe")

// brokenPipe fails on every read and write.
type brokenPipe struct{}

func (brokenPipe) Read([]byte) (int, error)  { return 0, errPipe }
func (brokenPipe) Write([]byte) (int, error) { return 0, errPipe }
