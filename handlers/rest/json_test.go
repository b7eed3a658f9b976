package rest_test

import (
	"bufio"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// TestTextsAreAnsweredAsTheyAreStored: what means something in HTML is not escaped, in answers and in server-sent events.
func TestTextsAreAnsweredAsTheyAreStored(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.put(t, "shop", `{"url":"http://shop.test"}`)
	const text = `<b>שלום & 😀</b>`
	id := a.startedID(t, `{"workflow":"order","deployment":"shop","input":{"html":"`+text+`"}}`, http.StatusCreated)
	for _, path := range []string{
		"/v1/runs/" + string(id), "/v1/runs/" + string(id) + "/events?payloads=true",
		"/v1/runs/" + string(id) + "/events/1/payload",
	} {
		w := a.serve(http.MethodGet, path, "")
		if !strings.Contains(w.Body.String(), text) {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	answer := tail(t, t.Context(), server.URL+"/v1/runs/"+string(id)+"/events/stream?payloads=true")
	r := bufio.NewReader(answer.Body)
	if _, err := nextBlock(r); err != nil { // the position
		t.Fatal(err)
	}
	if b, err := nextBlock(r); err != nil || !strings.Contains(b.data, text) {
		t.Errorf("the first event is %+v, %v", b, err)
	}
}

// TestLongAnswersAreCompressed for clients that take that.
func TestLongAnswersAreCompressed(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.put(t, "shop", `{"url":"http://shop.test"}`)
	long := `"` + strings.Repeat("a text that is long. ", 200) + `"`
	id := a.startedID(t, `{"workflow":"order","deployment":"shop","input":`+long+`}`, http.StatusCreated)
	for _, tt := range []struct {
		path, accepts, encoding string
	}{
		{"/v1/runs/" + string(id) + "/events?payloads=true", "br, gzip", "gzip"},
		{"/v1/runs/" + string(id) + "/events?payloads=true", "", ""},
		{"/v1/runs/" + string(id) + "/events?payloads=false", "gzip", ""}, // is short
	} {
		r, w := httptest.NewRequest(http.MethodGet, tt.path, nil), httptest.NewRecorder()
		r.Header.Set("Accept-Encoding", tt.accepts)
		a.ServeHTTP(w, r)
		if got := w.Header().Get("Content-Encoding"); got != tt.encoding || w.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%+v: got encoding %q, vary %q", tt, got, w.Header()["Vary"])
		}
		var body io.Reader = w.Body
		if tt.encoding != "" {
			if n := w.Body.Len(); n > len(long)/4 {
				t.Errorf("%+v: %d bytes", tt, n)
			}
			z := check.Value(gzip.NewReader(w.Body))(t)
			body = z
		}
		data, err := io.ReadAll(body)
		if err != nil || !strings.HasPrefix(string(data), `{"data":[`) || strings.Contains(string(data), long) != strings.Contains(tt.path, "=true") {
			t.Errorf("%+v: got %.80s, %v", tt, data, err)
		}
	}
}
