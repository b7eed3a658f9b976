package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

// TestKeywords has, for each keyword, values that fit a schema and values that do not.
func TestKeywords(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		schema   string
		fit, not []string
	}{
		{`true`, []string{`1`}, nil},
		{`false`, nil, []string{`1`}},
		{`{"unknown":{"type":7},"format":"email","contentEncoding":"base64"}`, []string{`"x"`}, nil},
		{`{"type":"integer"}`, []string{`1`, `1.0`, `1e2`, `-0`, `100000000000000000000`}, []string{`1.5`, `"1"`, `null`}},
		{`{"type":["null","number"]}`, []string{`null`, `1.5`}, []string{`true`, `{}`, `[]`}},
		{`{"enum":[1,"a",null,{"a":[1]}]}`, []string{`1.0`, `"a"`, `null`, `{"a":[1e0]}`}, []string{`2`, `{"a":[1,1]}`, `{}`}},
		{`{"const":{"a":1,"b":2}}`, []string{`{"b":2,"a":1}`}, []string{`{"a":1}`, `{"a":1,"b":"2"}`}},
		{`{"enum":[]}`, nil, []string{`1`}},
		{`{"$ref":"#/$defs/a~1b","$defs":{"a/b":{"type":"string"}}}`, []string{`"x"`}, []string{`1`}},
		{`{"$ref":"#name","$defs":{"x":{"$anchor":"name","type":"string"}}}`, []string{`"x"`}, []string{`1`}},
		{`{"$id":"https://x.example/s","$ref":"https://x.example/s#/$defs/a","$defs":{"a":{"type":"null"}}}`, []string{`null`}, []string{`1`}},
		{`{"properties":{"next":{"$ref":"#"}},"required":["v"]}`, []string{`{"v":1,"next":{"v":2}}`}, []string{`{"v":1,"next":{}}`}},
		{`{"$dynamicRef":"#n","$defs":{"x":{"$dynamicAnchor":"n","type":"null"}}}`, []string{`null`}, []string{`1`}},
		{`{"allOf":[{"minimum":1},{"maximum":3}]}`, []string{`2`, `"x"`}, []string{`0`, `4`}},
		{`{"anyOf":[{"type":"string"},{"minimum":3}]}`, []string{`"x"`, `4`}, []string{`2`}},
		{`{"oneOf":[{"type":"integer"},{"minimum":3}]}`, []string{`1`, `3.5`}, []string{`4`, `1.5`}},
		{`{"not":{"type":"string"}}`, []string{`1`}, []string{`"x"`}},
		{`{"if":{"type":"string"},"then":{"minLength":2},"else":{"minimum":2}}`, []string{`"ab"`, `2`}, []string{`"a"`, `1`}},
		{`{"minimum":1.5,"maximum":3}`, []string{`1.5`, `3`, `3.0`}, []string{`1`, `3.0000000000000000000001`}},
		{`{"exclusiveMinimum":1,"exclusiveMaximum":3}`, []string{`1.1`, `2`}, []string{`1`, `3`, `1.0`}},
		{`{"multipleOf":0.01}`, []string{`0.07`, `19.99`, `1e10`, `0`}, []string{`0.001`}},
		{`{"multipleOf":3}`, []string{`9`, `-3`, `9.0`}, []string{`10`, `9.5`}},
		{`{"minLength":2,"maxLength":3}`, []string{`"ab"`, `"äöü"`, `"\ud83d\ude00x"`}, []string{`"a"`, `"abcd"`}},
		{`{"pattern":"b+$"}`, []string{`"abb"`, `1`}, []string{`"ba"`}},
		{`{"minProperties":1,"maxProperties":2}`, []string{`{"a":1}`, `[]`}, []string{`{}`, `{"a":1,"b":1,"c":1}`}},
		{`{"required":["a","b"]}`, []string{`{"a":1,"b":null}`, `[]`}, []string{`{"a":1}`, `{}`}},
		{`{"properties":{"a":{"type":"string"}},"patternProperties":{"^x":{"type":"null"}},"additionalProperties":{"type":"number"}}`,
			[]string{`{"a":"s","xy":null,"z":1}`}, []string{`{"a":1}`, `{"xy":1}`, `{"z":"1"}`}},
		{`{"properties":{"a":{}},"additionalProperties":false}`, []string{`{"a":1}`}, []string{`{"b":1}`}},
		{`{"propertyNames":{"maxLength":2}}`, []string{`{"ab":1}`}, []string{`{"abc":1}`}},
		{`{"dependentRequired":{"a":["b"]}}`, []string{`{"a":1,"b":1}`, `{"b":1}`}, []string{`{"a":1}`}},
		{`{"dependentSchemas":{"a":{"required":["b"]}}}`, []string{`{"a":1,"b":1}`, `{}`}, []string{`{"a":1}`}},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{"type":"null"}},"dependencies":{"a":["b"],"c":{"required":["d"]}}}`,
			[]string{`{"a":1,"b":1}`, `{"c":1,"d":1}`}, []string{`{"a":1}`, `{"c":1}`}},
		{`{"minItems":1,"maxItems":2}`, []string{`[1]`}, []string{`[]`, `[1,2,3]`}},
		{`{"uniqueItems":true}`, []string{`[1,"1",true,null,[1],{"a":1}]`}, []string{`[1,1.0]`, `[{"a":1,"b":2},{"b":2,"a":1}]`}},
		{`{"prefixItems":[{"type":"string"}],"items":{"type":"number"}}`, []string{`["a",1]`, `[]`}, []string{`[1]`, `["a","b"]`}},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"string"}],"additionalItems":false}`, []string{`["a"]`}, []string{`[1]`, `["a",1]`}},
		{`{"contains":{"type":"string"}}`, []string{`[1,"a"]`}, []string{`[]`, `[1]`}},
		{`{"contains":{"type":"string"},"minContains":2,"maxContains":3}`, []string{`["a","b"]`}, []string{`["a"]`, `["a","b","c","d"]`}},
		{`{"contains":{"type":"string"},"minContains":0}`, []string{`[]`}, nil},
		{`{"allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false}`, []string{`{"a":1}`}, []string{`{"a":1,"b":1}`}},
		{`{"anyOf":[{"required":["a"],"properties":{"a":{}}},{"properties":{"b":{}}}],"unevaluatedProperties":false}`,
			[]string{`{"a":1,"b":1}`, `{"b":1}`}, []string{`{"b":1,"c":1}`}},
		{`{"if":{"properties":{"k":{"const":1}},"required":["k"]},"then":{"properties":{"a":{}}},"unevaluatedProperties":{"type":"null"}}`,
			[]string{`{"k":1,"a":2}`, `{"k":null}`}, []string{`{"k":2}`, `{"k":1,"b":2}`}},
		{`{"prefixItems":[true],"contains":{"type":"string"},"unevaluatedItems":false}`, []string{`[1,"a"]`}, []string{`[1,"a",2]`}},
	} {
		s, err := Compile([]byte(tt.schema))
		if err != nil {
			t.Errorf("%s: %v", tt.schema, err)
			continue
		}
		for _, value := range tt.fit {
			if err := s.Check([]byte(value), never); err != nil {
				t.Errorf("%s by %s: got %v", value, tt.schema, err)
			}
		}
		for _, value := range tt.not {
			if err := s.Check([]byte(value), never); !errors.Is(err, ErrViolations) || err.Error() == "" {
				t.Errorf("%s by %s: got %v", value, tt.schema, err)
			}
		}
	}
}

// TestFaultsOfSchemas are told with their places.
func TestFaultsOfSchemas(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`[]`: `got array, want an object or a boolean`, `{`: "it is not JSON: unexpected EOF", `1 2`: "it is not JSON: data after the value",
		`{"type":"text"}`:                                       `/type: want one of null, boolean, object, array, number, string, integer, or a list of them`,
		`{"properties":{"a":{"minimum":"1"}}}`:                  `/properties/a/minimum: got string, want number`,
		`{"required":"a","minLength":-1}`:                       `/minLength: want a whole number, and none below 0; /required: want an array of strings`,
		`{"$ref":"#/$defs/a"}`:                                  `/$ref: '#/$defs/a' is not found: references lead to parts of this schema, such as #/$defs/name`,
		`{"$ref":"https://x.example/"}`:                         `/$ref: 'https://x.example/' is not found: references lead to parts of this schema, such as #/$defs/name`,
		`{"$schema":"http://json-schema.org/draft-04/schema#"}`: `/$schema: the draft is not known: want https://json-schema.org/draft/2020-12/schema`,
		`{"$defs":{"a":{"$id":"a"}}}`:                           `/$defs/a/$id: only the root of a schema has an $id: put it in $defs, and refer to it as #/$defs/name`,
		`{"const":"\u0000"}`:                                    `/const: it has U+0000, which no text may have`, `{"\u0000":1}`: `it has U+0000, which no text may have`,
		`{"$vocabulary":{}}`:          `/$vocabulary: vocabularies are not supported`,
		`{"pattern":"("}`:             "/pattern: error parsing regexp: missing closing ): `(`",
		`{"allOf":[],"multipleOf":0}`: `/allOf: want an array with at least one schema; /multipleOf: want a number above 0`,
		`{"$defs":{"a":{"type":1}}}`:  `/$defs/a/type: want one of null, boolean, object, array, number, string, integer, or a list of them`,
	} {
		if _, err := Compile([]byte(schema)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", schema, err, want)
		}
	}
}

func TestViolationsAreTold(t *testing.T) {
	t.Parallel()
	s, err := Compile([]byte(`{"type":"object","required":["a","b"],"additionalProperties":false,"properties":{
		"a":{"type":"string"},"n":{"minimum":1},"l":{"items":{"enum":[1,"x"]}},"o":{"anyOf":[{"type":"null"},{"const":2}]}},
		"propertyNames":{"maxLength":5}}`))
	if err != nil {
		t.Fatal(err)
	}
	got := s.Check([]byte(`{"a":1,"n":0,"l":[1,2],"x/y~z":1,"longer":2,"o":3}`), never)
	want := Violations{
		{"", "missing property 'b'"}, {"/a", "got number, want string"}, {"/l/1", "value must be one of 1, 'x'"},
		{"", "invalid propertyName 'longer'"}, {"", "maxLength: got 6, want 5"}, {"/n", "minimum: got 0, want 1"},
		{"/o", "got number, want null"}, {"/o", "value must be 2"}, {"/o", "'anyOf' failed"},
		{"", "additional properties 'longer', 'x/y~z' not allowed"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := (&place{nil, "x/y~z"}).pointer(); got != "/x~1y~0z" {
		t.Errorf("got %s", got)
	}
}

// parts are schemas and values from which others are made.
var (
	partSchemas = []string{
		`true`, `false`, `{"type":"integer"}`, `{"type":["string","null"]}`, `{"minimum":2}`, `{"multipleOf":0.5}`, `{"const":1}`,
		`{"enum":["a",{"a":1}]}`, `{"minLength":2}`, `{"pattern":"a"}`, `{"required":["a"]}`, `{"maxProperties":1}`,
		`{"uniqueItems":true}`, `{"minItems":2}`, `{"properties":{"a":{"type":"integer"}}}`, `{"contains":{"const":1}}`,
	}
	combinations = []string{
		`{"allOf":[X,Y]}`, `{"anyOf":[X,Y]}`, `{"oneOf":[X,Y]}`, `{"not":X}`, `{"if":X,"then":Y}`, `{"if":X,"else":Y}`,
		`{"properties":{"a":X},"additionalProperties":Y}`, `{"patternProperties":{"a":X,"b":Y}}`, `{"items":X,"contains":Y}`,
		`{"prefixItems":[X],"items":Y}`, `{"propertyNames":X}`, `{"dependentSchemas":{"a":X,"b":Y}}`,
		`{"allOf":[X,Y],"unevaluatedProperties":false}`, `{"anyOf":[X,Y],"unevaluatedItems":false}`,
		`{"oneOf":[X,Y],"unevaluatedProperties":X}`, `{"if":X,"then":Y,"unevaluatedProperties":false}`,
		`{"contains":X,"maxContains":1,"unevaluatedItems":Y}`, `{"items":X,"uniqueItems":true}`,
	}
	partValues = []string{
		`null`, `true`, `1`, `2.5`, `1e1`, `"a"`, `"bc"`, `[]`, `[1]`, `[1,1.0]`, `["a",null,3]`, `{}`, `{"a":1}`, `{"a":"x","b":2}`,
		`{"b":[1,2],"c":{"a":1}}`, `[{"a":1},{"a":1,"b":2}]`,
	}
)

// TestSameAsAnotherLibrary compares with a library that has all of JSON Schema: random schemas and values fit, or not.
func TestSameAsAnotherLibrary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := `X`
		for range 3 {
			part := rapid.SampledFrom(combinations).Draw(t, "combination")
			text = strings.Replace(text, "X", part, 1)
		}
		for strings.ContainsAny(text, "XY") {
			part := rapid.SampledFrom(partSchemas).Draw(t, "part")
			text = strings.Replace(strings.Replace(text, "X", part, 1), "Y", part, 1)
		}
		value := rapid.SampledFrom(partValues).Draw(t, "value")
		if rapid.Bool().Draw(t, "wrapped") {
			value = `{"a":` + value + `,"b":[` + value + `]}`
		}
		s, err := Compile([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got, want := s.Check([]byte(value), never), otherLibrary(t, text, value); (got == nil) != (want == nil) {
			t.Fatalf("%s by %s: got %v, want %v", value, text, got, want)
		}
	})
}

func otherLibrary(t *rapid.T, schema, value string) error {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	for _, text := range []string{schema, value} {
		parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(text)))
		if err != nil {
			t.Fatal(err)
		}
		if text == value && schema != value {
			compiled, err := c.Compile("flow:schema")
			if err != nil {
				t.Fatalf("%s: %v", schema, err)
			}
			return compiled.Validate(parsed)
		}
		if err := c.AddResource("flow:schema", parsed); err != nil {
			t.Fatal(err)
		}
	}
	return nil
}

// FuzzCheck: no schema and no value make a check crash or exceed its limits.
func FuzzCheck(f *testing.F) {
	for _, attack := range attacks {
		if len(attack.value) < 1000 && len(attack.schema) < 5000 {
			f.Add([]byte(attack.schema), []byte(attack.value))
		}
	}
	for _, refusal := range refusals {
		if len(refusal.schema) < 5000 {
			f.Add([]byte(refusal.schema), []byte(`1e99999999`))
		}
	}
	for _, schema := range partSchemas {
		f.Add([]byte(schema), []byte(`{"\ud800":1e400,"a":["\ud83d"]}`))
	}
	f.Fuzz(func(t *testing.T, schema, value []byte) {
		s, err := Compile(schema)
		if err != nil || !json.Valid(value) {
			return
		}
		err = s.Check(value, never)
		if err != nil && !errors.Is(err, ErrViolations) && !errors.Is(err, ErrCost) {
			t.Errorf("got %v", err)
		}
		if again := s.Check(value, never); (err == nil) != (again == nil) || err != nil && err.Error() != again.Error() {
			t.Errorf("got %v, and again %v", err, again)
		}
	})
}
