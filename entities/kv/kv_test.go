package kv

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
)

func TestEncodeKeepsValuesVerbatim(t *testing.T) {
	t.Parallel()
	given := map[string]json.RawMessage{"b": json.RawMessage(`{"x": "<", "x":1.0}`), "a\"": nil, "ß": json.RawMessage(`"\u0000"`)}
	payload, err := Encode(given)
	if want := `{"a\"":null,"b":{"x": "<", "x":1.0},"ß":"\u0000"}`; err != nil || string(payload) != want {
		t.Fatalf("got %s and error %v, want %s", payload, err, want)
	}
	got, err := Decode(payload)
	given["a\""] = json.RawMessage(`null`)
	if diff := cmp.Diff(given, got); diff != "" || err != nil {
		t.Errorf("got error %v; (-want +got):\n%s", err, diff)
	}
}

func TestApplyFoldsWrites(t *testing.T) {
	t.Parallel()
	var store map[string]Value
	for i, payload := range []string{`{"a":1,"b":2}`, `{"b":null,"c":[ ]}`, `{"a":"x"}`, `{"nothing":null}`} {
		before := maps.Clone(store)
		after, err := Apply(store, []byte(payload), int64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, store); diff != "" {
			t.Errorf("%s changed the store before it (-want +got):\n%s", payload, diff)
		}
		store = after
	}
	want := map[string]Value{"a": {3, 3, []byte(`"x"`)}, "c": {2, 3, []byte(`[ ]`)}}
	if diff := cmp.Diff(want, store); diff != "" || Size(store) != 6 {
		t.Errorf("size %d; store (-want +got):\n%s", Size(store), diff)
	}
	if bare := WithoutJSON(store); bare["a"].JSON != nil || bare["a"].Size != 3 || store["a"].JSON == nil {
		t.Errorf("without JSON: %v, of %v", bare, store)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	full, large := map[string]Value{}, map[string]Value{}
	for i := range MaxKeys {
		full[fmt.Sprint(i)] = Value{Seq: 1, Size: 1}
	}
	for i := range MaxStore / MaxValue {
		large[fmt.Sprint(i)] = Value{Seq: 1, Size: MaxValue}
	}
	text := func(n int) string { return `"` + strings.Repeat("v", n-2) + `"` }
	for name, tt := range map[string]struct {
		store   map[string]Value
		payload string
		limited bool   // else invalid
		want    string // part of the error; empty for none
	}{
		"longest key":       {payload: `{"` + strings.Repeat("ß", MaxKey) + `":1}`},
		"longer key":        {payload: `{"` + strings.Repeat("ß", MaxKey+1) + `":1}`, limited: true, want: "257 characters; the limit is 256"},
		"largest value":     {payload: `{"k":` + text(MaxValue) + `}`},
		"larger value":      {payload: `{"k":` + text(MaxValue+1) + `}`, limited: true, want: "1048577 bytes; the limit is 1048576"},
		"one key more":      {store: full, payload: `{"k":1}`, limited: true, want: "257 keys; the limit is 256"},
		"one for another":   {store: full, payload: `{"k":1,"7":null}`},
		"the same key":      {store: full, payload: `{"7":2}`},
		"one byte more":     {store: large, payload: `{"k":1}`, limited: true, want: "16777217 bytes; the limit is 16777216"},
		"bytes for others":  {store: large, payload: `{"k":1,"7":""}`},
		"no keys":           {payload: `{}`, want: "no key"},
		"null":              {payload: `null`, want: "no key"},
		"no object":         {payload: `[]`, want: "want an object"},
		"empty key":         {payload: `{"":1}`, want: "missing"},
		"control character": {payload: `{"\u0000":1}`, want: "key of the store"},
		"a key twice":       {payload: `{"a":1,"a":2}`, want: "duplicate"},
	} {
		_, err := Apply(tt.store, []byte(tt.payload), 2)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, entities.ErrInvalid) || errors.Is(err, ErrLimit) != tt.limited || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want %q", name, err, tt.want)
		}
	}
}
