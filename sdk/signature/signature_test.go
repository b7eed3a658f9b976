package signature

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// vectors are signed requests and the expected results of verifying them, unchanged or modified.
type vectors struct {
	Keys   map[string]struct{ Secret string }
	Signed []struct {
		Name, Method, URL, Body string
		Headers, Signature      map[string]string
	}
	Verified []struct {
		Name, Like, Want string
		Keys             []string
		Now              int64
		Set              struct {
			Method, Target, Authority string
			Body                      *string
			Headers                   map[string]*string
		}
	}
}

func readVectors(t testing.TB) vectors {
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

// keys returns the keys with the given names.
func (v vectors) keys(t testing.TB, names ...string) []Key {
	t.Helper()
	var list []string
	for _, name := range names {
		list = append(list, v.Keys[name].Secret)
	}
	if list == nil {
		return nil
	}
	keys, err := ParseKeys(strings.Join(list, ", "))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// request builds the named signed request as a server receives it.
func (v vectors) request(t testing.TB, name string) (r *http.Request, body string) {
	t.Helper()
	for _, s := range v.Signed {
		if s.Name != name {
			continue
		}
		r := httptest.NewRequest(s.Method, s.URL, strings.NewReader(s.Body))
		// httptest uses the whole URL as the target; real requests carry only path and query.
		r.RequestURI = r.URL.RequestURI()
		for _, headers := range []map[string]string{s.Headers, s.Signature} {
			for name, value := range headers {
				r.Header.Set(name, strings.TrimSpace(value))
			}
		}
		return r, s.Body
	}
	t.Fatalf("no request %q", name)
	return nil, ""
}

var results = map[string]error{
	"ok": nil, "unsigned": ErrUnsigned, "malformed": ErrMalformed, "incomplete": ErrIncomplete, "wrong": ErrWrong,
	"expired": ErrExpired, "digest": ErrDigest,
}

func TestVectors(t *testing.T) {
	t.Parallel()
	vs := readVectors(t)
	seen := map[string]bool{}
	for _, v := range vs.Verified {
		r, body := vs.request(t, v.Like)
		if v.Set.Method != "" {
			r.Method = v.Set.Method
		}
		if v.Set.Target != "" {
			r.RequestURI = v.Set.Target
		}
		if v.Set.Authority != "" {
			r.Host = v.Set.Authority
		}
		if v.Set.Body != nil {
			body = *v.Set.Body
		}
		for name, value := range v.Set.Headers {
			if r.Header.Del(name); value != nil {
				r.Header.Set(name, *value)
			}
		}
		want, known := results[v.Want]
		if !known {
			t.Fatalf("%s: unknown result %q", v.Name, v.Want)
		}
		seen[v.Want] = true
		if got := Verify(r, []byte(body), time.Unix(v.Now, 0), vs.keys(t, v.Keys...)...); !errors.Is(got, want) {
			t.Errorf("%s: got %v, want %s", v.Name, got, v.Want)
		}
	}
	if len(seen) != len(results) {
		t.Errorf("the vectors cover only the results %v", seen)
	}
}

// TestVectorsInPython checks that the Python example's verifier gives the same results.
func TestVectorsInPython(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("python3", "../../examples/function-python/signature_test.py", "testdata/vectors.json")
	out, err := cmd.CombinedOutput()
	want := fmt.Sprintf("%d vectors\n", len(readVectors(t).Verified))
	if err != nil || string(out) != want {
		t.Errorf("got %v, %s, want %s", err, out, want)
	}
}

// TestRFC9421 verifies the example in section B.2.5 of the RFC, to prove that the signature base is interoperable.
func TestRFC9421(t *testing.T) {
	t.Parallel()
	secret, err := base64.StdEncoding.DecodeString(
		"uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ==")
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/foo?param=Value&Pet=dog", nil)
	r.Host = "example.com"
	for name, value := range map[string]string{
		"Date": "Tue, 20 Apr 2021 02:07:55 GMT", "Content-Type": "application/json",
		"Signature-Input": `sig-b25=("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret"`,
		"Signature":       "sig-b25=:pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8=:",
	} {
		r.Header.Set(name, value)
	}
	inputs, err := dictionary(r.Header, "Signature-Input")
	if err != nil || len(inputs) != 1 {
		t.Fatalf("got %v, %v", inputs, err)
	}
	signatures, err := dictionary(r.Header, "Signature")
	if err != nil || len(signatures) != 1 {
		t.Fatalf("got %v, %v", signatures, err)
	}
	text, err := base(r, inputs[0])
	const want = `"date": Tue, 20 Apr 2021 02:07:55 GMT
"@authority": example.com
"content-type": application/json
"@signature-params": ("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret"`
	if err != nil || text != want {
		t.Errorf("got the text %q, %v", text, err)
	}
	if got := string((Key{secret}).sign(text)); got != string(signatures[0].bytes) {
		t.Errorf("got the signature %x, want %x", got, signatures[0].bytes)
	}
	// A valid signature that covers too little is rejected.
	if err := Verify(r, nil, time.Unix(1618884473, 0), Key{secret}); !errors.Is(err, ErrIncomplete) {
		t.Errorf("verify: got %v", err)
	}
}

// TestSignatureWithoutCreationTimeIsRejected checks created and expires: without created, a signature would never
// expire.
func TestSignatureWithoutCreationTimeIsRejected(t *testing.T) {
	t.Parallel()
	vs := readVectors(t)
	key := vs.keys(t, "first")[0]
	for params, want := range map[string]error{
		``: ErrIncomplete, `;created=100`: nil, `;created=100;expires=0`: ErrExpired, `;created=100;expires=9000000000`: nil,
		`;expires=9000000000`: ErrIncomplete,
	} {
		r, body := vs.request(t, "call")
		inputs, err := dictionary(r.Header, "Signature-Input")
		if err != nil {
			t.Fatal(err)
		}
		inputs[0].raw = inputs[0].raw[:strings.Index(inputs[0].raw, ";")] + params
		text, err := base(r, inputs[0])
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Signature-Input", "sig1="+inputs[0].raw)
		r.Header.Set("Signature", "sig1=:"+base64.StdEncoding.EncodeToString(key.sign(text))+":")
		if got := Verify(r, []byte(body), time.Unix(100, 0), key); !errors.Is(got, want) {
			t.Errorf("%q: got %v, want %v", params, got, want)
		}
		if got := Verify(r, []byte(body), time.Unix(100+361, 0), key); got == nil {
			t.Errorf("%q: valid after %s", params, MaxAge)
		}
	}
}

// TestVerifyBehindStripPrefix checks that a handler mounted below a prefix verifies the original target.
func TestVerifyBehindStripPrefix(t *testing.T) {
	t.Parallel()
	vs := readVectors(t)
	r, body := vs.request(t, "call")
	var got error
	http.StripPrefix("/functions", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = Verify(r, []byte(body), time.Unix(1795218000, 0), vs.keys(t, "first")...)
	})).ServeHTTP(httptest.NewRecorder(), r)
	if got != nil {
		t.Error(got)
	}
	r.RequestURI = "" // adapters that build requests themselves leave it empty
	if got := Verify(r, []byte(body), time.Unix(1795218000, 0), vs.keys(t, "first")...); got != nil {
		t.Errorf("without RequestURI: %v", got)
	}
}

// TestHandlerPassesSignedCalls checks that the next handler gets the unchanged body.
func TestHandlerPassesSignedCalls(t *testing.T) {
	t.Parallel()
	vs := readVectors(t)
	r, body := vs.request(t, "two keys")
	h := Handler{
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }),
		Keys: vs.keys(t, "other", "second"), Now: func() time.Time { return time.Unix(1795218000, 0) },
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK || w.Body.String() != body {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestParseKeys(t *testing.T) {
	t.Parallel()
	good := KeyPrefix + base64.StdEncoding.EncodeToString(make([]byte, 32))
	for list, want := range map[string]int{good: 1, good + "," + good: 2, " " + good + " , " + good + "\n": 2} {
		if keys, err := ParseKeys(list); err != nil || len(keys) != want {
			t.Errorf("%q: got %d keys, %v", list, len(keys), err)
		}
	}
	for _, list := range []string{
		"", ",", good + ",", good[5:], "whsec_" + good[5:], good[:len(good)-4], good + "AAAA", KeyPrefix + strings.Repeat("?", 44),
	} {
		keys, err := ParseKeys(list)
		if err == nil || keys != nil {
			t.Errorf("%q: got %d keys, %v", list, len(keys), err)
		} else if len(list) > 10 && strings.Contains(err.Error(), list[5:]) {
			t.Errorf("the error contains the key: %v", err)
		}
	}
	keys, err := ParseKeys(good)
	if shown := fmt.Sprintf("%v %+v %#v %s", keys, keys, keys, keys[0]); err != nil || strings.Contains(shown, "0") {
		t.Errorf("formatted keys contain a secret: %s, %v", shown, err)
	}
}

// FuzzVerify checks that no headers pass without the key.
func FuzzVerify(f *testing.F) {
	vs := readVectors(f)
	for _, s := range vs.Signed {
		f.Add(s.Signature["Signature-Input"], s.Signature["Signature"], s.Signature["Content-Digest"])
	}
	f.Add(`a=("@method" "\"");b;c=?1`, `a=:YQ==:, b=1`, `sha-256=::`)
	other := vs.keys(f, "other")
	f.Fuzz(func(t *testing.T, input, signature, digest string) {
		r, body := vs.request(t, "call")
		r.Header.Set("Signature-Input", input)
		r.Header.Set("Signature", signature)
		r.Header.Set("Content-Digest", digest)
		if err := Verify(r, []byte(body), time.Unix(1795218000, 0), other...); err == nil {
			t.Error("an unsigned call was accepted")
		}
	})
}
