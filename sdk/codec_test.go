package stepwell

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// newTestCodec returns a codec with keys of these IDs, the first of which encrypts. Key k1 is 0, 1, 2, …, 31.
func newTestCodec(t *testing.T, ids ...string) Codec {
	t.Helper()
	keys := map[string][]byte{}
	for _, id := range ids {
		for i := range byte(32) {
			keys[id] = append(keys[id], i^id[1]^'1')
		}
	}
	c, err := NewAESGCM(ids[0], keys)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAESGCM(t *testing.T) {
	t.Parallel()
	c, rotated := newTestCodec(t, "k1"), newTestCodec(t, "k2", "k1")
	plain := []byte(`{"card":"4242"}`)
	encode := func(c Codec, id string) (string, []byte) {
		name, data, err := c.Encode(id, plain)
		if err != nil || bytes.Contains(data, []byte("4242")) {
			t.Fatalf("%q %v", data, err)
		}
		return name, data
	}
	name, data := encode(c, "a")
	if _, again := encode(c, "a"); !bytes.Equal(data, again) {
		t.Error("the same payload in the same place differs")
	}
	if _, other := encode(c, "b"); bytes.Equal(data[:12], other[:12]) {
		t.Error("another place has the same nonce")
	}
	if newName, _ := encode(rotated, "a"); name != "aes-256-gcm/k1" || newName != "aes-256-gcm/k2" {
		t.Errorf("the names are %s and %s", name, newName)
	}
	// By AESGCM of cryptography, in Python.
	foreign, _ := base64.StdEncoding.DecodeString("dW5pcXVlIG5vbmNlkmGVrLFFHWrafR0cRtN6+Au/YrcBvi0=")
	for _, test := range []struct {
		what  string
		codec Codec
		name  string
		data  []byte
		want  string // the payload, or what the error has
	}{
		{"the key", c, name, data, string(plain)},
		{"an old key", rotated, name, data, string(plain)},
		{"another implementation", c, name, foreign, `{"a":1}`},
		{"a missing key", c, "aes-256-gcm/k3", data, `no key "k3": add it`},
		{"a wrong key", rotated, "aes-256-gcm/k2", data, "does not fit"},
		{"a changed payload", c, name, append(slices.Clone(data[:len(data)-1]), data[len(data)-1]^1), "was changed"},
		{"a cut payload", c, name, data[:5], "cut off"},
		{"another codec", c, "gzip", data, "none of AES-256-GCM"},
	} {
		got, err := test.codec.Decode(test.name, test.data)
		if err != nil {
			got = []byte(err.Error())
		}
		if !strings.Contains(string(got), test.want) {
			t.Errorf("%s: got %s, want %s", test.what, got, test.want)
		}
	}
	whole := make([]byte, 32)
	for id, key := range map[string][]byte{"": whole, "k1": data[:12], "a b": whole, "a\"": whole} {
		if _, err := NewAESGCM(id, map[string][]byte{id: key}); err == nil {
			t.Errorf("the key %q of %d bytes is accepted", id, len(key))
		}
	}
	if _, err := NewAESGCM("k2", map[string][]byte{"k1": make([]byte, 32)}); err == nil {
		t.Error("a current key that is missing is accepted")
	}
}

// envelopeOf returns a payload in its encoded form.
func envelopeOf(t *testing.T, c Codec, plain string) string {
	t.Helper()
	text, err := Encoded(c, "a", json.RawMessage(plain))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestOpened(t *testing.T) {
	t.Parallel()
	c := newTestCodec(t, "k1")
	one, list := envelopeOf(t, c, `{"a":"}"}`), envelopeOf(t, c, `[1,2]`)
	var e map[string]string
	if err := json.Unmarshal([]byte(one), &e); err != nil {
		t.Fatal(err)
	}
	reordered := ` { "data" : "` + e["data"] + `", "$codec": "` + e["$codec"] + `" }`
	quoted, _ := json.Marshal("see " + one)
	for text, want := range map[string]string{
		`{"old":{"data":"x"}}`: `{"old":{"data":"x"}}`,
		`{"x":` + one + `,"y":{"data":[` + list + `,` + one + `]}}`: `{"x":{"a":"}"},"y":{"data":[[1,2],{"a":"}"}]}}`,
		reordered:                         ` {"a":"}"}`,
		string(quoted):                    string(quoted),
		`{"$codec":"k"}`:                  `{"$codec":"k"}`,
		`{"$codec":{}}`:                   `{"$codec":{}}`,
		`{"$codec":"gzip","data":"AA=="}`: "codec_failed",
		`{"$codec":"aes-256-gcm/k9","data":"AA=="}`: "codec_failed",
	} {
		got, err := opened(c, []byte(text))
		if err != nil && HasCode(err, want) {
			continue
		}
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
	if _, err := opened(nil, []byte(one)); !HasCode(err, codeCodec) {
		t.Errorf("without a codec: %v", err)
	}
}

// TestAllPayloadsOfCommandsAreEncoded but what people or other services must be able to read.
func TestAllPayloadsOfCommandsAreEncoded(t *testing.T) {
	t.Parallel()
	c := newTestCodec(t, "k1")
	readable := []string{"openHook.Metadata", "respond.Body"}
	for _, command := range []any{
		&runStep{Type: "runStep", FirstAttempt: &firstAttempt{}}, &recordStep{Type: "recordStep"},
		&startChild{Type: "startChild"}, &setStore{Type: "setStore"}, &openHook{Type: "openHook"}, &respond{Type: "respond"},
		&replyTo{Type: "reply"}, &completion{Type: "complete"}, &continueAs{Type: "continueAs"},
	} {
		v := reflect.ValueOf(command).Elem()
		filled := fill(v, v.Type().Name(), readable)
		plain, err := json.Marshal(answer{Commands: []any{command}})
		if err != nil || filled == 0 && !slices.ContainsFunc(readable, func(r string) bool {
			return strings.HasPrefix(r, v.Type().Name())
		}) {
			t.Fatalf("%s has %d payloads, %v", v.Type(), filled, err)
		}
		s := &sealer{codec: c}
		sealed := s.commands("wrun_1", plain)
		if s.err != nil || bytes.Contains(sealed, []byte("secret")) || bytes.Count(sealed, []byte(`"$codec"`)) != filled {
			t.Errorf("%d payloads: %s, %v", filled, sealed, s.err)
		}
		back, err := opened(c, sealed)
		if n := bytes.Count(back, []byte("secret")); err != nil || n != bytes.Count(plain, []byte("secret")) {
			t.Errorf("got %s back, %v", back, err)
		}
	}
}

// fill gives each payload in a value a secret, and returns how many there are. Those that stay readable have none.
func fill(v reflect.Value, name string, readable []string) (filled int) {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return 0
	}
	for f, field := range v.Fields() {
		switch {
		case slices.Contains(readable, name+"."+f.Name) || !f.IsExported() && !f.Anonymous:
		case f.Name == "Error" && f.Type == reflect.TypeFor[json.RawMessage]():
			field.SetBytes([]byte(`{"message":"secret","code":"c","details":"secret"}`))
			filled++
		case f.Type == reflect.TypeFor[json.RawMessage]():
			field.SetBytes([]byte(`"secret"`))
			filled++
		case f.Type == reflect.TypeFor[map[string]json.RawMessage]():
			field.Set(reflect.ValueOf(map[string]json.RawMessage{"a": []byte(`"secret"`), "gone": []byte("null")}))
			filled++
		default:
			filled += fill(field, f.Name, readable)
		}
	}
	return filled
}

func TestErrorsAreEncoded(t *testing.T) {
	t.Parallel()
	c := newTestCodec(t, "k1")
	app := NewApp(AppConfig{Name: "a", Codec: c})
	kind := NewErrorKind[int]("declined")
	for _, err := range []error{kind.New(7), Fail("unsupported", "no details"), errors.New("plain")} {
		was := encodeError(err)
		r := app.sealed(t.Context(), call{Type: "step"}, errorReply(500, was))
		if !bytes.Contains(r.Body, []byte(was.Code)) || bytes.Contains(r.Body, []byte("no details")) {
			t.Errorf("the server gets %s", r.Body)
		}
		text, err := opened(c, r.Body)
		var got struct{ Error RunFailure }
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if want := (RunFailure{was.Code, was.Message, was.Details}); err != nil || !reflect.DeepEqual(got.Error, want) {
			t.Errorf("got %+v back, %v, want %+v", got.Error, err, want)
		}
	}
	blocked := errorReply(500, failure{Code: "unknown_workflow", Message: "register it"})
	if r := app.sealed(t.Context(), call{Type: "workflow"}, blocked); !bytes.Equal(r.Body, blocked.Body) {
		t.Errorf("an error without payloads became %s", r.Body)
	}
}
