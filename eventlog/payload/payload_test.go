package payload

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
)

// sdk holds payloads that a client of the Workflow SDK (5.0.0-beta.55) encoded: see testdata/generate.mjs.
type sdk struct {
	// Shown is keyed by content; Bare is encoded by devalue alone, without the SDK's own types.
	Shown, Bare map[string][]byte
	// Written is keyed by the JSON text of the same value.
	Written map[string]string
	// Frames are the chunks of a stream of values, and of a stream of bytes.
	Frames [][]byte
}

func readSDK(t testing.TB) sdk {
	t.Helper()
	data, err := os.ReadFile("testdata/sdk.json")
	if err != nil {
		t.Fatal(err)
	}
	var s sdk
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// decode returns the value and the encoding of a payload.
func decode(data []byte) (value json.RawMessage, encoding string) {
	d := Decode(data, MaxDecoded)
	return d.Value, d.Encoding
}

func TestDecodeSDKPayloads(t *testing.T) {
	t.Parallel()
	s := readSDK(t)
	want := map[string]string{
		"undefined": `null`, "null": `null`, "true": `true`, "number": `1.5`, "negative zero": `-0`, "nan": `"NaN"`,
		"text":                 `"é \"quoted\" \u2028 \u003Cb>"`,
		"infinities":           `["Infinity","-Infinity","NaN",-0]`,
		"undefined inside":     `{"b":[null,1]}`,
		"holes":                `[1,null,3]`,
		"sparse":               `[` + strings.Repeat(`null,`, 30) + `"end"]`,
		"date":                 `"2026-03-01T12:00:00.123Z"`,
		"no date":              `null`,
		"bigint":               `"12345678901234567890"`,
		"regexp":               `"/a\"b\\/c/gi"`,
		"set":                  `["a",1]`,
		"set of a list":        `[[1,2]]`,
		"empty set":            `[]`,
		"map":                  `{"a":1,"b":{"c":2}}`,
		"map by number":        `[[1,"one"],[{"k":1},"two"]]`,
		"empty map":            `{}`,
		"url":                  `"https://example.com/a?b=c"`,
		"no search":            `""`,
		"search":               `"a=1&b=2"`,
		"headers":              `{"x-a":"1","x-b":"2"}`,
		"bytes":                `{"$type":"Uint8Array","base64":"AQL/"}`,
		"no bytes":             `{"$type":"Uint8Array","base64":""}`,
		"buffer":               `{"$type":"ArrayBuffer","base64":"Bw=="}`,
		"floats":               `{"$type":"Float32Array","base64":"AADAPw=="}`,
		"cycle":                `{"name":"root","list":[{"up":{"$ref":"#"}}]}`,
		"twice":                `[{"x":1},{"x":1}]`,
		"no prototype":         `{"a":1}`,
		"nested":               `{"a":[{"b":[[],{}]}]}`,
		"key to escape":        `{"a\"b\n":1}`,
		"short and compressed": `"xxxxxxxxxx"`,
		"compressed":           `{"text":"` + strings.Repeat("x", 5000) + `"}`,
		"fatal error":          `{"name":"FatalError","message":"no use","stack":"the stack"}`,
		"error": `{"name":"Error","message":"outer","stack":"the stack",` +
			`"cause":{"name":"RangeError","message":"inner","stack":"the stack"}}`,
	}
	compare(t, s.Shown, want)
	if compressed := s.Shown["compressed"]; len(compressed) > 500 {
		t.Errorf("the compressed payload has %d bytes", len(compressed))
	}
	compare(t, s.Bare, map[string]string{
		"date": `"2026-03-01T12:00:00.123Z"`, "set": `["a",1]`, "map": `[[1,2]]`, "regexp": `"/a/g"`, "bigint": `"7"`,
		"view":  `{"$type":"Uint8Array","value":{"$type":"ArrayBuffer","base64":"AQIDBA=="},"offset":1,"length":2}`,
		"whole": `{"$type":"Uint16Array","value":{"$type":"ArrayBuffer","base64":"AQACAA=="}}`, "boxed": `["boxed"]`,
		"url": `"https://example.com/"`, "empty": `[]`,
	})
}

func compare(t *testing.T, payloads map[string][]byte, want map[string]string) {
	t.Helper()
	if len(payloads) != len(want) {
		t.Errorf("got %d payloads, want %d", len(payloads), len(want))
	}
	for name, data := range payloads {
		value, encoding := decode(data)
		if string(value) != want[name] || encoding != EncodingDevalue {
			t.Errorf("%s: %s\ngot  %s %s\nwant %s", name, data, encoding, value, want[name])
		}
	}
}

func TestDevalueEncodesLikeTheSDK(t *testing.T) {
	t.Parallel()
	written := readSDK(t).Written
	if len(written) < 10 {
		t.Fatalf("only %d texts", len(written))
	}
	exceptions := map[string]string{
		// JavaScript parsed these before encoding them, which rounds numbers; readers get the same values from ours.
		`{"a":1,"a":2}`:        `devl[{"a":1,"a":2},1,2]`,
		`["\u0041","A","é\n"]`: `devl[[1,2,3],"\u0041","A","é\n"]`,
	}
	for text, want := range written {
		if other, ok := exceptions[text]; ok {
			want = other
		}
		got, err := Devalue([]byte(text))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, error %v; want %s", text, got, err, want)
		}
	}
}

func TestDevalueRejects(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		``, `{`, `nope`, `[1,]`, "\"\xff\"", `{"__proto__":1}`, `[{"__pr\u006fto__":{}}]`,
		strings.Repeat(`[`, 1002) + strings.Repeat(`]`, 1002),
	} {
		if got, err := Devalue([]byte(text)); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("%.40q: got %.40q, error %v; want ErrInvalid", text, got, err)
		}
	}
}

func compressed(t testing.TB, format, data string) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString(format)
	if format == "gzip" {
		w := gzip.NewWriter(&b)
		if _, err := w.Write([]byte(data)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return e.EncodeAll([]byte(data), b.Bytes())
}

func inCBOR(t testing.TB, v any) []byte {
	t.Helper()
	data, err := cbor.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestDecode(t *testing.T) {
	t.Parallel()
	nested := []byte("devl[1]")
	for range maxNested + 1 {
		nested = compressed(t, "gzip", string(nested))
	}
	for name, test := range map[string]struct {
		data     []byte
		encoding string
		want     string
	}{
		"nothing":               {nil, EncodingNone, ``},
		"JSON":                  {[]byte(` {"a": 1e2} `), EncodingJSON, ` {"a": 1e2} `},
		"JSON number":           {[]byte(`12`), EncodingJSON, `12`},
		"JSON of broken text":   {[]byte("\"\xff\""), EncodingOpaque, ``},
		"encrypted":             {[]byte("encr\x00\x01"), EncodingEncrypted, ``},
		"encrypted to a key":    {[]byte("encp"), EncodingEncrypted, ``},
		"gzip":                  {compressed(t, "gzip", `devl["a"]`), EncodingDevalue, `"a"`},
		"zstd":                  {compressed(t, "zstd", `devl["a"]`), EncodingDevalue, `"a"`},
		"compressed JSON":       {compressed(t, "zstd", `[1]`), EncodingJSON, `[1]`},
		"twice compressed":      {compressed(t, "zstd", string(compressed(t, "gzip", `devl[2]`))), EncodingDevalue, `2`},
		"compressed too often":  {nested, EncodingOpaque, ``},
		"encrypted, compressed": {compressed(t, "gzip", `encr..`), EncodingEncrypted, ``},
		"gzip cut short":        {compressed(t, "gzip", `devl["a"]`)[:14], EncodingOpaque, ``},
		"no gzip":               {[]byte("gzipgzip"), EncodingOpaque, ``},
		"no zstd":               {[]byte("zstdzstd"), EncodingOpaque, ``},
		"CBOR map":              {inCBOR(t, map[string]any{"b": 1, "a": []byte{1}}), EncodingCBOR, `{"a":{"$type":"Uint8Array","base64":"AQ=="},"b":1}`},
		"CBOR keys":             {inCBOR(t, map[any]any{1: nil, "x": 1.5}), EncodingCBOR, `{"1":null,"x":1.5}`},
		"CBOR date":             {[]byte("\xc1\x1a\x69\xa4\x29\x40"), EncodingCBOR, `"2026-03-01T11:55:44.000Z"`},
		"CBOR odd numbers":      {[]byte("\x84\xf9\x7e\x00\xf9\x7c\x00\xc2\x49\x01\x00\x00\x00\x00\x00\x00\x00\x00\xf7"), EncodingCBOR, `["NaN","Infinity","18446744073709551616",null]`},
		"CBOR key twice":        {[]byte("\xa2\x61a\x01\x61a\x02"), EncodingOpaque, ``},
		"CBOR and more":         {[]byte("\x80\x80"), EncodingOpaque, ``},
		"one byte":              {[]byte{0}, EncodingOpaque, ``},
		"text":                  {[]byte("hello"), EncodingOpaque, ``},
		"short":                 {[]byte("dev"), EncodingOpaque, ``},

		"devalue, no list":       {[]byte(`devl{}`), EncodingOpaque, ``},
		"devalue, empty":         {[]byte(`devl[]`), EncodingOpaque, ``},
		"devalue, cut short":     {[]byte(`devl[1`), EncodingOpaque, ``},
		"devalue, far pointer":   {[]byte(`devl[[1]]`), EncodingOpaque, ``},
		"devalue, no pointer":    {[]byte(`devl[[null]]`), EncodingOpaque, ``},
		"devalue, odd constant":  {[]byte(`devl-9`), EncodingOpaque, ``},
		"devalue, lone hole":     {[]byte(`devl-2`), EncodingOpaque, ``},
		"devalue, not UTF-8":     {[]byte("devl[\"\xff\"]"), EncodingOpaque, ``},
		"devalue, spaces":        {[]byte(" devl[1]"), EncodingOpaque, ``},
		"devalue with spaces":    {[]byte("devl [ { \"a\" : 1 } , [ 2 ] , 3 ] "), EncodingDevalue, `{"a":[3]}`},
		"devalue, list in list":  {[]byte(`devl[[0]]`), EncodingDevalue, `[{"$ref":"#"}]`},
		"devalue, set in itself": {[]byte(`devl[["Set",0]]`), EncodingDevalue, `[{"$ref":"#"}]`},
		"devalue, box in itself": {[]byte(`devl[["Object",0]]`), EncodingDevalue, `{"$ref":"#"}`},
		"devalue, pointer escapes": {[]byte(`devl[{"a/b~":1},{"c":1}]`), EncodingDevalue,
			`{"a/b~":{"c":{"$ref":"#/a~1b~0"}}}`},
		"devalue, map, keys alike": {[]byte(`devl[["Map",1,2,1,2],"a",1]`), EncodingDevalue, `[["a",1],["a",1]]`},
		"devalue, half a map":      {[]byte(`devl[["Map",1,2,1],"a",1]`), EncodingOpaque, ``},
		"devalue, no base64":       {[]byte(`devl[["Uint8Array",1],"\"}"]`), EncodingOpaque, ``},
		"devalue, unknown":         {[]byte(`devl[["Thing",1],{"a":2},3]`), EncodingDevalue, `{"$type":"Thing","a":3}`},
		"devalue, unknown value":   {[]byte(`devl[["Thing",1],3]`), EncodingDevalue, `{"$type":"Thing","value":3}`},
		"devalue, unknown, bare":   {[]byte(`devl[["Thing"]]`), EncodingDevalue, `{"$type":"Thing"}`},
		"devalue, unknown cycle": {[]byte(`devl[["Thing",1],{"me":0}]`), EncodingDevalue,
			`{"$type":"Thing","me":{"$ref":"#"}}`},
		"devalue, time":        {[]byte(`devl[["Temporal.Instant","2026-03-01T12:00:00Z"]]`), EncodingDevalue, `"2026-03-01T12:00:00Z"`},
		"devalue, sparse, odd": {[]byte(`devl[[-7,3,1]]`), EncodingOpaque, ``},
		"devalue, sparse, far": {[]byte(`devl[[-7,3,3,1],1]`), EncodingOpaque, ``},
		"devalue, too deep":    {deep(maxDepth + 1), EncodingOpaque, ``},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			value, encoding := decode(test.data)
			if encoding != test.encoding || string(value) != test.want {
				t.Errorf("got %s %s, want %s %s", encoding, value, test.encoding, test.want)
			}
		})
	}
}

// deep returns arrays nested n deep.
func deep(n int) []byte {
	out := []byte("devl[")
	for i := 1; i < n; i++ {
		out = append(out, "["...)
		out = append(out, itoa(i)...)
		out = append(out, "],"...)
	}
	return append(out, "[]]"...)
}

func itoa(n int) string {
	text, _ := json.Marshal(n)
	return string(text)
}

func TestNestingIsDecodedUpToTheLimit(t *testing.T) {
	t.Parallel()
	value, encoding := decode(deep(maxDepth))
	if encoding != EncodingDevalue || string(value) != strings.Repeat("[", maxDepth)+strings.Repeat("]", maxDepth) {
		t.Errorf("got %s %.40s", encoding, value)
	}
}

// TestSmallPayloadsCannotExceedTheLimits: payloads that expand are rejected early, before the result is built.
func TestSmallPayloadsCannotExceedTheLimits(t *testing.T) {
	t.Parallel()
	const limit = 100_000
	laughs := `devl[[1,1,1,1,1,1,1,1,1,1]`
	for i := 2; i < 40; i++ {
		n := itoa(i)
		laughs += `,[` + strings.Repeat(n+`,`, 9) + n + `]`
	}
	silent := `devl[[` + strings.Repeat(`1,`, 20_000) + `1],{` // much to read, nothing to write
	for i := range 2000 {
		silent += `"` + itoa(i) + `":-1,`
	}
	for name, data := range map[string]string{
		"JSON":           `"` + strings.Repeat("x", limit) + `"`,
		"devalue":        `devl["` + strings.Repeat("x", limit) + `"]`,
		"compressed":     string(compressed(t, "zstd", `devl["`+strings.Repeat("x", 20*limit)+`"]`)),
		"gzip":           string(compressed(t, "gzip", `devl["`+strings.Repeat("x", 20*limit)+`"]`)),
		"lists of lists": laughs + `,1]`,
		"silent":         silent + `"z":-1}]`,
		"sparse":         `devl[[-7,4294967295]]`,
		"CBOR":           string(inCBOR(t, []any{strings.Repeat("x", limit)})),
		"CBOR bytes":     string(inCBOR(t, []any{bytes.Repeat([]byte{1}, limit*9/10)})),
	} {
		d := Decode([]byte(data), limit)
		if d.Value != nil || !d.TooLarge {
			t.Errorf("%s: got %.40s, too large: %t; want no value, as it is too large", name, d.Value, d.TooLarge)
		}
	}
	d := Decode([]byte(`devl["small"]`), limit)
	if d.TooLarge || d.Value == nil || d.Encoding != EncodingDevalue {
		t.Errorf("small: got %+v", d)
	}
}

// TestDecodingTakesLittleMemory decodes payloads that are short compared with the memory that they could take: an array
// with holes, and a reference to a place that is deep below a long key.
func TestDecodingTakesLittleMemory(t *testing.T) { //nolint:paralleltest // measures what the process allocates
	deep := `devl[{"` + strings.Repeat("k", 1<<20) + `":1}`
	for i := range 900 {
		deep += `,[` + itoa(min(i+2, 900)) + `]`
	}
	for name, data := range map[string]string{"holes": `devl[[-7,16000000]]`, "deep": deep + `]`} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d := Decode([]byte(data), MaxDecoded)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; d.Encoding != EncodingDevalue || used > 10*MaxDecoded {
			t.Errorf("%s: took %d bytes as %s, want at most %d", name, used, d.Encoding, 10*MaxDecoded)
		}
	}
}

// TestCountValues compares with the values that this test put in.
func TestCountValues(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70_000)
	for want, data := range map[int][]byte{
		1: {0x5f, 0xff}, 2: {0x5f, 0x41, 0x00, 0xff}, // byte strings in chunks
		3:  inCBOR(t, []any{1, long}),
		5:  inCBOR(t, map[string]any{"a": map[string]any{"b": nil}}),
		9:  inCBOR(t, []any{1 << 40, 1.5, 300, -70_000, true, []byte(long), "", []any{}}),
		16: inCBOR(t, []any{bytes.Repeat([]byte{1}, 300), strings.Repeat("y", 24), []any{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}),
		4:  {0x9f, 0xc1, 0x00, 0xbf, 0x00, 0xff, 0xff}, // list and map without length, and a tag
	} {
		if got := codec.Count(data); got != want {
			t.Errorf("%.20x: got %d values, want %d", data, got, want)
		}
	}
}

// TestWorkIsMeasured: payloads that take long to decode count as much work, whatever their size and outcome.
func TestWorkIsMeasured(t *testing.T) {
	t.Parallel()
	const limit = 100_000
	list := func(item byte) []byte {
		return append([]byte{0x9a, 0, 0, 0xc3, 0x50}, bytes.Repeat([]byte{item}, 50_000)...) // 50,000 items of CBOR
	}
	for name, c := range map[string]struct {
		data string
		work int // at least
	}{
		"JSON":             {`"` + strings.Repeat("x", 50_000) + `"`, 50_000},
		"compressed":       {string(compressed(t, "gzip", `"`+strings.Repeat("x", 50_000)+`"`)), 100_000},
		"inflated too far": {string(compressed(t, "gzip", strings.Repeat("x", 20*limit))), limit},
		"CBOR":             {string(list(0x01)), 200_000},
		"too many values":  {string(list(0xa0)), 200_000},
		"devalue":          {`devl[[` + strings.Repeat(`1,`, 25_000) + `1],1]`, 100_000},
		"CBOR in zstd":     {string(compressed(t, "zstd", string(list(0x80)))), 250_000},
		"not CBOR":         {string(append(list(0x01), 1)), 200_000},
	} {
		if d := Decode([]byte(c.data), limit); d.Work < c.work || d.Work > 20*limit {
			t.Errorf("%s: work is %d, want at least %d", name, d.Work, c.work)
		}
	}
}

func TestField(t *testing.T) {
	t.Parallel()
	extra := inCBOR(t, map[string]any{"error": map[string]any{"message": "no", "stack": "at"}, "n": 1})
	if value, ok := Field(extra, "error"); !ok || string(value) != `{"message":"no","stack":"at"}` {
		t.Errorf("got %s, %t", value, ok)
	}
	if value, ok := Field(extra, "n"); !ok || string(value) != `1` {
		t.Errorf("got %s, %t", value, ok)
	}
	for name, data := range map[string][]byte{"no field": extra, "no CBOR": {0xff}, "nothing": nil, "no map": {0x01}} {
		if value, ok := Field(data, "other"); ok {
			t.Errorf("%s: got %s", name, value)
		}
	}
}
