package record

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
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

func TestSaysDecodesChunks(t *testing.T) {
	t.Parallel()
	r := Request{Path: "/v2/runs/r/stream/s", Header: map[string]string{"X-Stream-Multi": "true"}}
	r.Body = blocks([]byte("one"), []byte{1})
	want := []any{map[string]any{"$text": "one"}, map[string]any{"$bytes": "AQ=="}}
	if diff := cmp.Diff(want, r.Says()); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
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

// sample returns a recording with one exchange of every kind.
func sample(t *testing.T) Recording {
	t.Helper()
	at := time.Date(2026, 11, 21, 1, 41, 43, 197e6, time.UTC)
	agent := map[string]string{"User-Agent": "one"}
	run := map[string]any{"runId": strings.Repeat("r", shortest), "attempt": json.Number("1"), "at": json.Number("1.0")}
	return Recording{Client: "client 1", Case: "a case", Exchanges: []Exchange{
		{
			Clock: at, Request: Request{Method: "POST", Path: "/v4/runs/r/events/x", Header: map[string]string{
				"User-Agent": "one", "Content-Type": "application/octet-stream",
			}, Body: blocks(encode(t, map[string]any{"eventType": "x"}), []byte{0, 1})},
			Answer: Answer{Status: 200, Header: map[string]string{"X": "1"}, Body: map[string]any{"run": run}},
		},
		{Clock: at.Add(time.Second), Delivery: &Delivery{Topic: "t", Message: "msg_1", Receipt: "rh_1", Count: 2}},
		{
			Clock: at, Request: Request{Method: "GET", Path: "/a<b>", Header: agent},
			Answer: Answer{Status: 404, Body: []any{run, map[string]any{"again": run}}},
		},
		{
			Clock: at, Request: Request{
				Method: "PUT", Path: "/t", Header: map[string]string{"User-Agent": "two"}, Body: []byte("text\n"),
			},
			Answer: Answer{Status: 204, Cut: true},
		},
		{Clock: at, Request: Request{Method: "GET", Path: "/b", Header: agent}, Answer: Answer{Status: 200}},
	}}
}

func TestFileRoundTrip(t *testing.T) {
	t.Parallel()
	want := sample(t)
	var file bytes.Buffer
	if err := want.Write(&file); err != nil {
		t.Fatal(err)
	}
	for part, times := range map[string]int{
		strings.Repeat("r", shortest):         1, // the run appears once,
		`{"$same":"1 answer.run"}`:            2, // and is then referenced
		`"User-Agent":"one"`:                  1, // as the default
		`"User-Agent":"two"`:                  1,
		`"says": [{"body":{"$bytes":"AAE="},`: 1,
		`"/a<b>"`:                             1,
	} {
		if n := strings.Count(file.String(), part); n != times {
			t.Errorf("the file has %d of %s, want %d:\n%s", n, part, times, file.String())
		}
	}
	got, err := Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the recording after reading (-want +got):\n%s", diff)
	}
}

func TestReadRejectsInvalidFiles(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	if err := sample(t).Write(&file); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"bytes that differ from their decoded form", `"eventType":"x"`, `"eventType":"y"`, `exchange 1: the decoded form differs from the bytes: says[0].meta.eventType`},
		{"dangling reference", `"1 answer.run"`, `"1 answer.rum"`, `exchange 3: 3 answer[0]: no object at "1 answer.rum"`},
		{"unknown field", `"status": 204`, `"statuz": 204`, `exchange 4: json: unknown field "statuz"`},
		{"invalid JSON", `{"client":`, `{`, "read recording: invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			changed := strings.Replace(file.String(), c.old, c.new, 1)
			if changed == file.String() {
				t.Fatalf("the file has no %s", c.old)
			}
			if _, err := Read(strings.NewReader(changed)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
