package codec

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

// TestObjectIsEncodedLikeAMap compares with Marshal, whose output other tests compare with what clients write and read.
func TestObjectIsEncodedLikeAMap(t *testing.T) {
	t.Parallel()
	at := NewTime(time.UnixMilli(1795225268528))
	long := strings.Repeat("long ", 100)
	fields := map[string]any{
		"b": "text", "a": Int(0), "aa": Int(math.MaxUint32), "ab": Int(math.MaxUint32 + 1), "ac": Int(-1),
		"ad": Int(math.MinInt32), "ae": Int(math.MinInt32 - 1), "af": Int(maxSafe), "ag": Int(-maxSafe),
		"created": at, "bytes": Bytes{1, 2}, "none": Bytes{}, long: long, "é": "é", "bad": "a\xff", "raw": Raw{0x81, 0x01},
		"value": []string{"x"}, "object": map[string]any{"y": "z", "x": Int(1)}, "end": true,
	}
	want, err := Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	var o, inner Object
	inner.Text("y", "z")
	inner.Int("x", 1)
	encoded, err := inner.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // its memory is reused
		o.Reset()
		for key, value := range fields {
			switch v := value.(type) {
			case string:
				o.Text(key, v)
			case Int:
				o.Int(key, v)
			case Time:
				o.Time(key, v)
			case Bytes:
				o.Bytes(key, v)
			case map[string]any:
				o.Map(key, encoded)
			default:
				o.Value(key, v)
			}
		}
		got, err := o.AppendTo([]byte("before"))
		if err != nil {
			t.Fatal(err)
		}
		if got := got[len("before"):]; !bytes.Equal(got, want) {
			t.Errorf("got  %x\nwant %x", got, want)
		}
	}
}

func TestObjectWithoutFieldsIsEmpty(t *testing.T) {
	t.Parallel()
	var o Object
	o.Text("text", "")
	o.Time("time", Time{})
	if got, err := o.AppendTo(nil); err != nil || hex.EncodeToString(got) != "a0" {
		t.Errorf("got %x, error %v; want an empty map", got, err)
	}
}

// TestObjectMerges: later fields replace those of a map that a client has sent, whose values are kept byte for byte.
func TestObjectMerges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ client, want string }{
		"map":        {"a2617a182a6161f6", "a46161f661621b000000000000000561630161" + "7a182a"},
		"indefinite": {"bf6161f6ff", "a36161f661621b0000000000000005616301"},
		"longhead":   {"a1" + "7800" + "01", "a3" + "60" + "01" + "61621b0000000000000005616301"},
		"replaced":   {"a1616218ff", "a261621b0000000000000005616301"},
		"undefined":  {"a16161f7", "a261621b0000000000000005616301"},
		"no map":     {"f6", "a261621b0000000000000005616301"},
		"empty":      {"a0", "a261621b0000000000000005616301"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o Object
			o.Merge(unhex(t, c.client))
			o.Merge(unhex(t, "a161621b0000000000000005")) // {b: 5n}
			o.Int("c", 1)
			if got, err := o.AppendTo(nil); err != nil || hex.EncodeToString(got) != c.want {
				t.Errorf("got %x, error %v; want %s", got, err, c.want)
			}
		})
	}
}

func TestObjectRejects(t *testing.T) {
	t.Parallel()
	for name, add := range map[string]func(*Object){
		"Huge":      func(o *Object) { o.Int("a", maxSafe+1) },
		"HugeMinus": func(o *Object) { o.Int("a", -maxSafe-1) },
		"GoTime":    func(o *Object) { o.Value("a", time.Unix(1, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o Object
			add(&o)
			o.Int("b", 1)
			if got, err := o.AppendTo(nil); err == nil {
				t.Errorf("got %x, want an error", got)
			}
			o.Reset()
			if got, err := o.AppendTo(nil); err != nil || len(got) != 1 {
				t.Errorf("after Reset: got %x, error %v", got, err)
			}
		})
	}
	for name, client := range map[string]string{
		"Array": "80", "Twice": "a2616101616102", "Trailing": "a000", "Short": "a16161", "Poison": "a161617f6161ff",
		"IntegerKey": "a10102",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o Object
			o.Merge(unhex(t, client))
			if got, err := o.AppendTo(nil); !errors.Is(err, ErrMalformed) {
				t.Errorf("got %x, error %v; want %v", got, err, ErrMalformed)
			}
		})
	}
}

// TestEncodedIsAPartOfAValue: what an object has encoded is part of a value without another encoding.
func TestEncodedIsAPartOfAValue(t *testing.T) {
	t.Parallel()
	var o Object
	o.Text("a", "b")
	item, err := o.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Marshal(struct {
		One  Encoded   `cbor:"one,omitzero"`
		None Encoded   `cbor:"none,omitzero"`
		List []Encoded `cbor:"list"`
	}{One: item, List: []Encoded{item, item}})
	if want := "a2636f6e65a161616162646c69737482a161616162a161616162"; err != nil || hex.EncodeToString(got) != want {
		t.Errorf("got %x, error %v; want %s", got, err, want)
	}
}

// BenchmarkObject measures the encoding of an event's metadata.
func BenchmarkObject(b *testing.B) {
	var o Object
	var buf []byte
	at := NewTime(time.UnixMilli(1795225268528))
	b.ReportAllocs()
	for b.Loop() {
		o.Reset()
		o.Text("runId", "wrun_01J00000000000000000000000")
		o.Text("eventId", "evnt_00000000000000000000000001")
		o.Time("createdAt", at)
		o.Text("eventType", "step_created")
		o.Int("specVersion", 5)
		buf, _ = o.AppendTo(buf[:0])
	}
}
