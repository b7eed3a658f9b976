package signing

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the signatures of the vectors")

const vectorsFile = "../../sdk/signature/testdata/vectors.json"

// vector is a request and the headers that Sign adds to it.
type vector struct {
	Name      string            `json:"name"`
	Method    string            `json:"method"`
	URL       string            `json:"url"`
	Headers   map[string]string `json:"headers"`
	Body      string            `json:"body"`
	Created   int64             `json:"created"`
	Keys      []string          `json:"keys"`
	Signature map[string]string `json:"signature"`
}

type vectors struct {
	Keys map[string]struct {
		ID     string `json:"id"`
		Secret string `json:"secret"`
	} `json:"keys"`
	Signed   []vector        `json:"signed"`
	Verified json.RawMessage `json:"verified"`
}

func readVectors(t *testing.T) vectors {
	t.Helper()
	data, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Signed) < 5 {
		t.Fatalf("got only %d vectors", len(v.Signed))
	}
	return v
}

func (vs vectors) keys(t *testing.T, names []string) []Key {
	t.Helper()
	var keys []Key
	for _, name := range names {
		secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(vs.Keys[name].Secret, "swsk_"))
		if err != nil || len(secret) != 32 {
			t.Fatalf("key %s: %d bytes, %v", name, len(secret), err)
		}
		keys = append(keys, Key{ID: vs.Keys[name].ID, Secret: secret})
	}
	return keys
}

// TestSignMatchesVectors signs the requests that package sdk/signature and the Python example verify.
func TestSignMatchesVectors(t *testing.T) {
	t.Parallel()
	vs := readVectors(t)
	for i, v := range vs.Signed {
		r, err := http.NewRequestWithContext(t.Context(), v.Method, v.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range v.Headers {
			r.Header.Set(name, value)
		}
		before := r.Header.Clone()
		Sign(r, []byte(v.Body), vs.keys(t, v.Keys), time.Unix(v.Created, 0).Add(999*time.Millisecond))
		got := map[string]string{}
		for name := range r.Header {
			if _, ok := before[name]; !ok {
				got[name] = r.Header.Get(name)
			}
		}
		if diff := cmp.Diff(v.Signature, got); diff != "" && !*update {
			t.Errorf("%s (-want +got):\n%s", v.Name, diff)
		}
		vs.Signed[i].Signature = got
	}
	if *update {
		var out bytes.Buffer
		e := json.NewEncoder(&out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		if err := e.Encode(vs); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(vectorsFile, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSignWithoutKeysAddsNoHeaders: a project without keys gets unsigned requests.
func TestSignWithoutKeysAddsNoHeaders(t *testing.T) {
	t.Parallel()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x.test", nil)
	if err != nil {
		t.Fatal(err)
	}
	Sign(r, []byte("x"), nil, time.Unix(0, 0))
	if len(r.Header) != 0 {
		t.Errorf("got %v", r.Header)
	}
}
