package strictjson

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
)

type inner struct {
	Name  string  `json:"name"`
	Value *string `json:"value"`
}

type outer struct {
	Text   string             `json:"text"`
	Number int                `json:"number"`
	Flag   bool               `json:"flag"`
	Raw    json.RawMessage    `json:"raw"`
	Inner  inner              `json:"inner"`
	List   []inner            `json:"list"`
	Map    map[string]*string `json:"map"`
	Maybe  *inner             `json:"maybe"`
	Bytes  []byte             `json:"bytes"`
	At     time.Time          `json:"at"`
}

func TestDecode(t *testing.T) {
	t.Parallel()
	v, empty := "v", ""
	var got outer
	err := Decode([]byte(`{"text":"t\\u0000","number":7,"flag":true,"raw":{"a":1,"a":null,"\u0000":"\u0000\ud800"},"inner":{"name":"n","value":null},
		"list":[{"name":"x","value":"v"}],"map":{"k":"v","gone":null,"none":""},"maybe":null}`), &got)
	want := outer{
		Text: `t\u0000`, Number: 7, Flag: true, Raw: json.RawMessage(`{"a":1,"a":null,"\u0000":"\u0000\ud800"}`), Inner: inner{Name: "n"},
		List: []inner{{"x", &v}}, Map: map[string]*string{"k": &v, "gone": nil, "none": &empty},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

// TestWhatIsDecodedIsItsOwn: neither the bytes, nor what is decoded later, after an error, too, change it.
func TestWhatIsDecodedIsItsOwn(t *testing.T) {
	t.Parallel()
	body := []byte(`{"text":"short","raw":{"a":"first"},"map":{"k":"v"},"list":[{"name":"n"}]}`)
	var got outer
	if err := Decode(body, &got); err != nil {
		t.Fatal(err)
	}
	clear(body)
	for _, other := range []string{`{"text":"later","raw":{"a":"other"},"list":[{"name":"m"}]}`, `{"text":["`, `{"hidden":"t"}`} {
		_ = Decode([]byte(other), &outer{}) // two of them are wrong
	}
	v := "v"
	want := outer{Text: "short", Raw: json.RawMessage(`{"a":"first"}`), Map: map[string]*string{"k": &v}, List: []inner{{Name: "n"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("it has changed (-want +got):\n%s", diff)
	}
	var after outer
	if err := Decode([]byte(`{"text":"t"}`), &after); err != nil || after.Text != "t" {
		t.Errorf("after errors: got %q, %v", after.Text, err)
	}
}

func TestDecodeErrorsNameTheField(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`[]`:                              "body: want an object, got a list",
		`null`:                            "body: want an object, got null",
		`{"text":1}`:                      "text: want a string, got a number",
		`{"text":null}`:                   "text: want a string, got null",
		`{"text":""}`:                     "text: it is empty: give a value, or leave it out",
		`{"inner":{"name":""}}`:           "inner.name: it is empty: give a value, or leave it out",
		`{"Text":"t"}`:                    "Text: unknown field",
		`{"hidden":"t"}`:                  "hidden: unknown field",
		`{"":"t"}`:                        ": unknown field",
		`{"text":"t","text":"u"}`:         "text: duplicate field",
		`{"number":1.5}`:                  "number: 1.5 is not a whole number",
		`{"number":99999999999999999999}`: "number: 99999999999999999999 is not a whole number",
		`{"flag":"true"}`:                 "flag: want true or false, got a string",
		`{"inner":{"nam":"n"}}`:           "inner.nam: unknown field",
		`{"inner":{"value":1}}`:           "inner.value: want a string, got a number",
		`{"list":{}}`:                     "list: want a list, got an object",
		`{"list":[{},{"name":true}]}`:     "list[1].name: want a string, got true or false",
		`{"map":{"k":1}}`:                 "map.k: want a string, got a number",
		`{"maybe":{"name":[]}}`:           "maybe.name: want a string, got a list",
		`{"bytes":"-"}`:                   "bytes: illegal base64 data at input byte 0",
		`{"at":"now"}`:                    `at: parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006"`,
		``:                                "the body is not JSON: EOF",
		`{"text":"t"`:                     "the body is not JSON: unexpected EOF after offset 11",
		`{"list":[{}`:                     `the body is not JSON: unexpected EOF within "/list" after offset 11`,
		`{} {}`:                           "the body is not JSON: data after the value",
		`{"map":{"0":1}}`:                 "map.0: want a string, got a number",
		`{"map":{"k":"","k":""}}`:         "map.k: duplicate field",
		`{"list":[null]}`:                 "list[0]: want an object, got null",
		`{"maybe":null,"text":""}`:        "text: it is empty: give a value, or leave it out",
		`{"text":"a\u0000b"}`:             "text: it has U+0000, which no text may have",
		`{"inner":{"value":"\u0000"}}`:    "inner.value: it has U+0000, which no text may have",
		`{"map":{"k":"\u0000"}}`:          "map.k: it has U+0000, which no text may have",
		`{"raw":1e400}`:                   "raw: the number 1e400 is out of range: a number is a double with at most 400 characters and no exponent below -400",
		`{"raw":{"a\ud800":1}}`:           `raw: the name "a\ud800" has half of a surrogate pair`,
	} {
		err := Decode([]byte(body), new(outer))
		if !errors.Is(err, entities.ErrInvalid) || err.Error() != want {
			t.Errorf("%s: got %v, want %s", body, err, want)
		}
	}
}

func TestDecodeLenientTreatsNullAndEmptyAsMissing(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`null`, `{"text":"","inner":{"name": ""}}`, `{"text":null,"number" : null , "flag":null}`, `{"inner":{"name":null},"list":[null,{"value":null}]}`,
		`{"inner":null,"list":null,"map":null,"maybe":null,"bytes":null,"at":null}`,
	} {
		var got, want outer
		if err := json.Unmarshal([]byte(body), &want); err != nil {
			t.Fatal(err)
		}
		err := DecodeLenient([]byte(body), &got)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: error %v (-want +got):\n%s", body, err, diff)
		}
	}
	for body, want := range map[string]string{
		`{"text":nil}`:          "the body is not JSON: invalid character 'i' in literal null (expecting 'u') within \"/text\" after offset 9",
		`{"inner":{"Name":""}}`: "inner.Name: unknown field",
	} {
		if err := DecodeLenient([]byte(body), new(outer)); !errors.Is(err, entities.ErrInvalid) || err.Error() != want {
			t.Errorf("%s: got %v, want %s", body, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"text":"t","list":[{"value":null}],"map":{"a":"b"},"raw":[1]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for name, decode := range map[string]func([]byte, any) error{"Decode": Decode, "DecodeLenient": DecodeLenient} {
			if err := decode(data, new(outer)); err != nil && !errors.Is(err, entities.ErrInvalid) {
				t.Errorf("%s: %s: got %v, want an invalid request", name, data, err)
			}
		}
	})
}
