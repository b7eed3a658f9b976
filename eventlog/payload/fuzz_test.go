package payload

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"testing"
	"unicode/utf8"
)

const traffic = "../../handlers/wire/testdata/traffic"

// recorded returns all payloads in the recorded traffic of the SDK's clients.
func recorded(t testing.TB) (all [][]byte) {
	t.Helper()
	seen := map[string]bool{}
	err := fs.WalkDir(os.DirFS(traffic), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path.Join(traffic, name))
		if err != nil {
			return err
		}
		for dec := json.NewDecoder(bytes.NewReader(data)); dec.More(); {
			var v any
			if err := dec.Decode(&v); err != nil {
				return err
			}
			payloadsIn(v, func(text string) {
				if !seen[text] {
					seen[text] = true
					all = append(all, []byte(text))
				}
			})
		}
		return nil
	})
	if err != nil || len(all) < 100 {
		t.Fatalf("found %d payloads, error %v", len(all), err)
	}
	return all
}

// payloadsIn calls found with every payload in a recorded value.
func payloadsIn(v any, found func(string)) {
	switch v := v.(type) {
	case map[string]any:
		if text, ok := v["$text"].(string); ok {
			found(text)
		}
		for _, inner := range v {
			payloadsIn(inner, found)
		}
	case []any:
		for _, inner := range v {
			payloadsIn(inner, found)
		}
	}
}

// TestRecordedPayloadsAreDecoded decodes every devalue payload of the recorded traffic.
func TestRecordedPayloadsAreDecoded(t *testing.T) {
	t.Parallel()
	shown := 0
	for _, data := range recorded(t) {
		if !bytes.HasPrefix(data, []byte("devl")) {
			continue
		}
		if value, encoding := decode(data); encoding != EncodingDevalue || !json.Valid(value) {
			t.Errorf("%.200s: got %s %.200s", data, encoding, value)
		}
		shown++
	}
	if shown < 100 {
		t.Errorf("only %d devalue payloads", shown)
	}
}

func FuzzDecode(f *testing.F) {
	for _, data := range recorded(f) {
		f.Add(data)
	}
	s := readSDK(f)
	for _, set := range []map[string][]byte{s.Shown, s.Bare} {
		for _, data := range set {
			f.Add(data)
		}
	}
	f.Add(inCBOR(f, map[string]any{"message": "m", "list": []any{1, nil, []byte{2}}}))
	f.Add(compressed(f, "zstd", `devl[{"a":1},2]`))
	f.Add(compressed(f, "gzip", `devl[{"a":1},2]`))
	const limit = 1 << 16
	f.Fuzz(func(t *testing.T, data []byte) {
		d := Decode(data, limit)
		value, encoding := d.Value, d.Encoding
		switch {
		case value == nil:
		case d.TooLarge || len(value) > limit:
			t.Errorf("%q: %d bytes, too large: %t", data, len(value), d.TooLarge)
		case !json.Valid(value) || !utf8.Valid(value):
			t.Errorf("%q: %s %q is not JSON", data, encoding, value)
		}
		if value == nil && !d.TooLarge && (encoding == EncodingJSON || encoding == EncodingDevalue || encoding == EncodingCBOR) {
			t.Errorf("%q: %s without a value", data, encoding)
		}
	})
}

// FuzzDevalue checks that an encoded value decodes to the same JSON.
func FuzzDevalue(f *testing.F) {
	for text := range readSDK(f).Written {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		written, err := Devalue(data)
		if err != nil || len(data) > 1<<16 {
			return
		}
		value, encoding := decode(written)
		if encoding != EncodingDevalue {
			t.Fatalf("%q: %q is %s", data, written, encoding)
		}
		again, err := Devalue(value)
		if err != nil {
			t.Fatalf("%q: decoded as %q: %v", data, value, err)
		}
		if !bytes.Equal(written, again) && !bytes.Contains(value, []byte("Infinity")) {
			t.Errorf("%q: first %q, then %q", data, written, again)
		}
	})
}
