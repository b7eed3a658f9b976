package schema

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

type base struct {
	ID string `json:"id"`
}

type node struct {
	base

	Count    int64             `json:"count,string"`
	Price    float64           `json:"price,omitempty"`
	At       time.Time         `json:"at"`
	Next     *node             `json:"next,omitempty"`
	Tags     []string          `json:"tags"`
	Names    map[string]uint8  `json:"names"`
	Raw      json.RawMessage   `json:"raw"`
	Bytes    []byte            `json:"bytes"`
	Anything any               `json:"anything"`
	Inline   struct{ OK bool } `json:"inline"`
	Hidden   string            `json:"-"`
	private  string
}

// tree is a slice of itself.
type tree []tree

func TestOf(t *testing.T) {
	t.Parallel()
	_ = node{}.private
	for _, test := range []struct {
		of   any
		want string
	}{
		{"", `{"type":"string"}`},
		{struct{}{}, `{"properties":{},"required":[],"type":"object"}`},
		{[2]bool{}, `{"items":{"type":"boolean"},"type":"array"}`},
		{tree{}, `{"items":{},"type":["array","null"]}`},
		{node{}, `{"$defs":{"node":{"properties":{` +
			`"anything":{},"at":{"format":"date-time","type":"string"},` +
			`"bytes":{"contentEncoding":"base64","type":["string","null"]},"count":{"type":"string"},"id":{"type":"string"},` +
			`"inline":{"properties":{"OK":{"type":"boolean"}},"required":["OK"],"type":"object"},` +
			`"names":{"additionalProperties":{"type":"integer"},"type":["object","null"]},` +
			`"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]},"price":{"type":"number"},"raw":{},` +
			`"tags":{"items":{"type":"string"},"type":["array","null"]}},` +
			`"required":["anything","at","bytes","count","id","inline","names","raw","tags"],"type":"object"}},` +
			`"$ref":"#/$defs/node"}`},
	} {
		schema, err := Of(reflect.TypeOf(test.of))
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(schema)
		if err != nil || string(got) != test.want {
			t.Errorf("%T:\ngot  %s\nwant %s", test.of, got, test.want)
		}
	}
}
