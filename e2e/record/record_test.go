package record

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
)

func encode(t *testing.T, v any) []byte {
	t.Helper()
	mode, err := cbor.EncOptions{Time: cbor.TimeUnixDynamic, TimeTag: cbor.EncTagRequired}.EncMode()
	if err != nil {
		t.Fatal(err)
	}
	data, err := mode.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func blocks(list ...[]byte) (data []byte) {
	for _, b := range list {
		data = append(binary.BigEndian.AppendUint32(data, uint32(len(b))), b...)
	}
	return data
}

// TestValueKeepsAllDistinctions checks that values that differ in CBOR differ in decoded form.
func TestValueKeepsAllDistinctions(t *testing.T) {
	t.Parallel()
	const frames = "application/vnd.workflow.v4-frames"
	at := time.Date(2026, 11, 21, 1, 41, 43, 197e6, time.UTC)
	for _, c := range []struct {
		name, path, kind string
		body             []byte
		want             string
	}{
		{"nothing", "/", "application/cbor", nil, `null`},
		{"whole number", "/", "application/cbor", encode(t, 5), `5`},
		{"largest number", "/", "application/cbor", encode(t, uint64(math.MaxUint64)), `18446744073709551615`},
		{"float", "/", "application/cbor", encode(t, 5.0), `5.0`},
		{"fraction", "/", "application/cbor", encode(t, 0.5), `0.5`},
		{"date", "/", "application/cbor", encode(t, at), `{"$date":"2026-11-21T01:41:43.197Z"}`},
		{"date, not tagged", "/", "application/cbor", encode(t, "2026-11-21T01:41:43.197Z"), `"2026-11-21T01:41:43.197Z"`},
		{"text in bytes", "/", "application/cbor", encode(t, []byte("devl[1]")), `{"$text":"devl[1]"}`},
		{"bytes", "/", "application/cbor", encode(t, []byte{0, 255}), `{"$bytes":"AP8="}`},
		{"tag", "/", "application/cbor", encode(t, cbor.Tag{Number: 64, Content: []byte{0}}), `{"$tag":64,"value":{"$bytes":"AA=="}}`},
		{"map", "/", "application/cbor; charset=x", encode(t, map[string]any{"a": []any{nil, true}}), `{"a":[null,true]}`},
		{"not CBOR", "/", "application/cbor", []byte{0xff}, `{"$bytes":"/w=="}`},
		{"the same key twice", "/", "application/cbor", []byte("\xa2\x61a\x01\x61a\x02"), `{"$bytes":"omFhAWFhAg=="}`},
		{"JSON", "/", "application/json", []byte(`{"a": 1e3}`), `{"a":1e3}`},
		{"frames", "/", frames, blocks(encode(t, 1), []byte("x"), encode(t, 2), nil), `[{"body":{"$text":"x"},"meta":1},{"meta":2}]`},
		{"frame of a request", "/v4/runs/x/events/y", "application/octet-stream", blocks(encode(t, 1), nil), `[{"meta":1}]`},
		{"frame cut short", "/", frames, []byte{0, 0, 0, 2, 1}, `{"$bytes":"AAAAAgE="}`},
		{"bytes of a stream", "/v2/stream/x", "application/octet-stream", []byte("ab"), `{"$text":"ab"}`},
		{
			"parts", "/", `multipart/mixed; boundary=b`,
			[]byte("--b\r\ncontent-type: application/json\r\nx: 1\r\n\r\n[2]\r\n--b--\r\n"),
			`[{"body":[2],"header":{"Content-Type":"application/json","X":"1"}}]`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := marshal(Value(c.path, c.kind, c.body))
			if err != nil || string(got) != c.want {
				t.Errorf("got %s (%v), want %s", got, err, c.want)
			}
		})
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	parse := func(text string) any {
		v, err := fromJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct {
		name, want, got string
		lines           []string
	}{
		{"same", `{"a":[1,{"b":null}]}`, `{"a":[1,{"b":null}]}`, nil},
		{"deep", `{"a":[{"b":1}]}`, `{"a":[{"b":2}]}`, []string{"body.a[0].b: got 2, want 1"}},
		{"integer and float", `[5]`, `[5.0]`, []string{"body[0]: got 5.0, want 5"}},
		{"missing", `{"a":1,"b":2}`, `{"a":1}`, []string{"body.b: missing, want 2"}},
		{"null is not missing", `{"a":null}`, `{}`, []string{"body.a: missing, want null"}},
		{"new", `{}`, `{"a":null}`, []string{"body.a: got null, want no such field"}},
		{"shorter", `[1,2]`, `[1]`, []string{"body: got 1 items, want 2"}},
		{"kind", `{"a":{}}`, `{"a":[]}`, []string{"body.a: got [], want {}"}},
		{"all of them", `{"a":1,"b":1}`, `{"a":2,"b":2}`, []string{"body.a: got 2, want 1", "body.b: got 2, want 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.lines, Diff("body", parse(c.want), parse(c.got))); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}
