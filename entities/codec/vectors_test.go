package codec

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"testing"
)

// update makes TestMarshal write testdata/emitted.json, the input of testdata/gen.mjs.
var update = flag.Bool("update", false, "write testdata/emitted.json")

// vectors is testdata/vectors.json, which the real cbor-x wrote: see testdata/gen.mjs.
type vectors struct {
	Values   map[string]string // name → hex of a value as cbor-x encodes it
	Binaries map[string]string // name → hex of frames and stream bodies around such values
	Reads    map[string]string // hex → what cbor-x decodes it to, or "throws: …"
}

func loadVectors(t testing.TB) vectors {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// value returns the bytes of a named value.
func (v vectors) value(t testing.TB, name string) []byte {
	t.Helper()
	return pick(t, v.Values, name)
}

// binary returns the bytes of a named frame or stream body.
func (v vectors) binary(t testing.TB, name string) []byte {
	t.Helper()
	return pick(t, v.Binaries, name)
}

func pick(t testing.TB, from map[string]string, name string) []byte {
	t.Helper()
	text, ok := from[name]
	if !ok {
		t.Fatalf("no vector %q", name)
	}
	return unhex(t, text)
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
