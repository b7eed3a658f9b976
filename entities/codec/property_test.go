package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// profile checks one CBOR item against protocol §2.1 "What clients accept". It shares no code with the package, and
// returns the data after the item, or the first violation.
func profile(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("truncated")
	}
	major, info := b[0]>>5, b[0]&31
	size := map[byte]int{24: 1, 25: 2, 26: 4, 27: 8}[info]
	if info > 27 || len(b) < 1+size {
		return nil, fmt.Errorf("indefinite, reserved or cut head %x", b[0])
	}
	arg := uint64(info)
	if size > 0 {
		arg = binary.BigEndian.Uint64(append(make([]byte, 8-size, 8), b[1:1+size]...))
	}
	first, rest := b[0], b[1+size:]
	switch major {
	case 0, 1:
		if info == 27 || first == 0x3a && arg > math.MaxInt32 {
			return nil, fmt.Errorf("integer %x, not for clients", b[:1+size])
		}
		return rest, nil
	case 2, 3:
		if arg > uint64(len(rest)) || major == 3 && !utf8.Valid(rest[:arg]) {
			return nil, fmt.Errorf("bad string")
		}
		return rest[arg:], nil
	case 4, 5:
		return profileItems(rest, arg*uint64(major-3))
	case 6:
		if first != 0xc1 || len(rest) == 0 || rest[0] != 0x1a && rest[0] != 0xfb {
			return nil, fmt.Errorf("tag %d, not a date as clients write it", arg)
		}
		return profile(rest)
	default:
		if info < 20 || info == 24 {
			return nil, fmt.Errorf("simple value %d", arg)
		}
		return rest, nil
	}
}

func profileItems(b []byte, n uint64) ([]byte, error) {
	for range n {
		var err error
		if b, err = profile(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// TestProfileRejects shows that the checker finds violations.
func TestProfileRejects(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"1b0000000000000001", "3b0000000000000001", "3a80000000", "c11b0000000000000001",
		"c101", "c06161", "d84040", "5f4101ff", "7f6161ff", "9fff", "bfff", "81", "e0", "61ff",
		"a161611b0000000000000001", "811b0000000000000001"} {
		if rest, err := profile(unhex(t, text)); err == nil {
			t.Errorf("%s: passed, rest %x", text, rest)
		}
	}
}

// anyTime draws a Time of the years 1970 to 9999.
func anyTime() *rapid.Generator[Time] {
	last := time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC).UnixMilli()
	return rapid.Map(rapid.Int64Range(0, last), date)
}

// anyInt draws integers, including those at the boundaries of their encodings.
func anyInt() *rapid.Generator[int64] {
	borders := []int64{0, 23, 24, 255, 256, 65535, 65536, math.MaxInt32, math.MaxUint32, math.MaxUint32 + 1, maxSafe}
	return rapid.OneOf(
		rapid.Int64Range(-maxSafe, maxSafe),
		rapid.Custom(func(t *rapid.T) int64 {
			n := rapid.SampledFrom(borders).Draw(t, "border") + rapid.Int64Range(-2, 2).Draw(t, "off")
			if rapid.Bool().Draw(t, "negative") {
				n = -n
			}
			return min(max(n, -maxSafe), maxSafe)
		}),
	)
}

// anyValue draws values of wire structs, nested up to depth.
func anyValue(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.Map(anyInt(), func(n int64) any { return n }),
		rapid.Map(anyInt(), func(n int64) any { return Int(n) }),
		rapid.Map(rapid.Uint64Range(0, maxSafe), func(n uint64) any { return n }),
		rapid.Int32().AsAny(), rapid.Uint8().AsAny(), rapid.Float64().AsAny(), rapid.Float32().AsAny(),
		rapid.Bool().AsAny(), rapid.String().AsAny(), anyTime().AsAny(),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) any { return Bytes(b) }),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) any { return string(b) }), // not UTF-8
		rapid.SampledFrom([]any{nil, Bytes(nil), Raw(nil), []int(nil), map[string]int(nil), (*Time)(nil)}),
	}
	if depth == 0 {
		return rapid.OneOf(leaves...)
	}
	deeper := rapid.Deferred(func() *rapid.Generator[any] { return anyValue(depth - 1) })
	return rapid.OneOf(append(leaves,
		rapid.SliceOfN(deeper, 0, 30).AsAny(),
		rapid.MapOfN(rapid.String(), deeper, 0, 30).AsAny(),
		rapid.MapOfN(anyInt(), deeper, 0, 5).AsAny(),
		rapid.Map(deeper, func(v any) any { return optional{Input: Bytes{1}, Data: []Int{-1 << 33}} }),
	)...)
}

// TestMarshalEmitsOnlyWhatClientsAccept checks that Marshal never emits a forbidden item.
func TestMarshalEmitsOnlyWhatClientsAccept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		data, err := Marshal(anyValue(4).Draw(t, "value"))
		if err != nil {
			t.Fatal(err)
		}
		if rest, err := profile(data); err != nil || len(rest) > 0 {
			t.Fatalf("%x: %v, rest %x", data, err, rest)
		}
	})
}

type record struct {
	N    Int            `cbor:"n,omitzero"`
	F    float64        `cbor:"f,omitzero"`
	S    string         `cbor:"s"`
	B    Bytes          `cbor:"b,omitzero"`
	At   Time           `cbor:"at"`
	Opt  *Time          `cbor:"opt,omitzero"`
	M    map[string]Int `cbor:"m,omitzero"`
	Next *record        `cbor:"next,omitzero"`
}

func anyRecord() *rapid.Generator[record] {
	return rapid.Custom(func(t *rapid.T) record {
		r := record{
			N:  Int(anyInt().Draw(t, "n")),
			F:  rapid.Float64().Draw(t, "f"),
			S:  rapid.String().Draw(t, "s"),
			At: anyTime().Draw(t, "at"),
		}
		if rapid.Bool().Draw(t, "more") {
			r.B = rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "b")
			r.Opt = ptr(anyTime().Draw(t, "opt"))
			r.M = rapid.MapOfN(rapid.String(), rapid.Map(anyInt(), func(n int64) Int { return Int(n) }), 1, 5).Draw(t, "m")
			r.Next = ptr(anyRecord().Draw(t, "next"))
		}
		return r
	})
}

func TestMarshalUnmarshalRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := anyRecord().Draw(t, "record")
		data, err := Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got record
		if err := Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	})
}

// TestTimeIsExactForGoAndJS checks Go's and cbor-x's way of reading a date: new Date(Math.round(sec * 1000)).
func TestTimeIsExactForGoAndJS(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := anyTime().Draw(t, "time")
		data, err := Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Time
		if err := Unmarshal(data, &got); err != nil || got != want {
			t.Fatalf("got %v, error %v, want %v", got, err, want)
		}
		if data[1] == 0xfb {
			sec := math.Float64frombits(binary.BigEndian.Uint64(data[2:]))
			if js := int64(math.Floor(sec*1000 + 0.5)); js != want.Time().UnixMilli() {
				t.Fatalf("JS reads %d, want %d", js, want.Time().UnixMilli())
			}
		}
	})
}

// anySent draws CBOR in all forms that clients send.
func anySent(depth int) *rapid.Generator[[]byte] {
	leaf := rapid.Custom(func(t *rapid.T) []byte {
		n := rapid.Uint64().Draw(t, "n")
		text := rapid.String().Draw(t, "text")
		return rapid.SampledFrom([][]byte{
			appendHead(nil, majorUint, n), appendHead(nil, majorNegative, n),
			binary.BigEndian.AppendUint64([]byte{0x1b}, n), // a BigInt, however small
			appendFloat(nil, math.Float64frombits(n)), appendFloat([]byte{0xc1}, float64(n)),
			append(appendHead(nil, majorText, uint64(len(text))), text...),
			append(binary.BigEndian.AppendUint16([]byte{0xd8, 0x40, 0x59}, uint16(len(text))), text...),
			{0xf4}, {0xf5}, {0xf6}, {0xf7}, {0xc1, 0x1a, 1, 2, 3, 4},
		}).Draw(t, "leaf")
	})
	if depth == 0 {
		return leaf
	}
	return rapid.OneOf(leaf, rapid.Custom(func(t *rapid.T) []byte {
		items := rapid.SliceOfN(anySent(depth-1), 0, 5).Draw(t, "items")
		n := uint16(len(items))
		array := append(binary.BigEndian.AppendUint16([]byte{0x99}, n), bytes.Join(items, nil)...)
		object := binary.BigEndian.AppendUint16([]byte{0xb9}, n)
		entries := binary.BigEndian.AppendUint16([]byte{0xd9, 0x01, 0x03, 0xb9}, n)
		for i, item := range items {
			object = append(append(object, 0x61, 'a'+byte(i)), item...)
			entries = append(append(entries, item...), item...)
		}
		set := append([]byte{0xd9, 0x01, 0x02}, array...)
		return rapid.SampledFrom([][]byte{array, object, entries, set}).Draw(t, "container")
	}))
}

// TestRawVerbatim ensures that free maps of clients are returned byte for byte, wherever they occur.
func TestRawVerbatim(t *testing.T) {
	t.Parallel()
	type holder struct {
		Ctx Raw `cbor:"ctx,omitzero"`
		N   Int `cbor:"n"`
	}
	rapid.Check(t, func(t *rapid.T) {
		item := anySent(4).Draw(t, "item")
		var raw Raw
		if err := Unmarshal(item, &raw); err != nil {
			t.Fatal(err)
		}
		if item[0] == itemUndefined {
			return // absent
		}
		want := []holder{{Ctx: raw, N: 1 << 40}, {N: 2}, {Ctx: raw}}
		data, err := Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Count(data, item); got < 2 {
			t.Fatalf("%x: item %x stands there %d times", data, item, got)
		}
		var got []holder
		if err := Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	})
}

// TestSurrogateRepairIsLinear guards against a quadratic scan of hostile text.
func TestSurrogateRepairIsLinear(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("é", 1<<20) + "\xed\xa0\xbd"
	data := append(appendHead(nil, majorText, uint64(len(text))), text...)
	var got string
	if err := Unmarshal(data, &got); err != nil || !strings.HasSuffix(got, "é\ufffd") {
		t.Errorf("error %v, length %s", err, strconv.Itoa(len(got)))
	}
}
