package signature_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/signature"
)

const key = "swsk_p5IYZjN8pK/0CxfvdJ0c1Z7nLwM4GmPyU0kC7GNyfYI="

// call makes an unsigned call.
func call(body io.Reader) *http.Request { return httptest.NewRequest(http.MethodPost, "/", body) }

func keys(t *testing.T) []signature.Key {
	t.Helper()
	keys, err := signature.ParseKeys(key)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestHandlerRefusesUnverifiedCalls(t *testing.T) {
	t.Parallel()
	h := signature.Handler{
		Next: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("an unverified call reached the next handler") }),
		Keys: keys(t), Now: time.Now, MaxBody: 5,
	}
	for _, tt := range []struct {
		body io.Reader
		want int
		code string
	}{
		{strings.NewReader("12345"), http.StatusUnauthorized, `"code":"wrong_signature"`},
		{strings.NewReader("123456"), http.StatusRequestEntityTooLarge, `"code":"too_large"`},
		{broken{}, http.StatusBadRequest, `"code":"malformed"`},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, call(tt.body))
		// Unless the error is retryable, the step fails permanently.
		if w.Code != tt.want || !strings.Contains(w.Body.String(), tt.code) || !strings.Contains(w.Body.String(), `"retryable":true`) {
			t.Errorf("got %d %s, want %d with %s", w.Code, w.Body, tt.want, tt.code)
		}
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A function that accepts only calls from its own project's servers.
func Example() {
	keys, err := signature.ParseKeys(key) // a real program reads it from the environment
	if err != nil {
		log.Print(err)
		return
	}
	function := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"commands": []}`)
	})
	server := httptest.NewServer(signature.Handler{Next: function, Keys: keys, Now: time.Now})
	defer server.Close()

	resp, err := http.Post(server.URL, "application/json", strings.NewReader(`{"type": "workflow"}`)) //nolint:noctx // an example
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	answer, _ := io.ReadAll(resp.Body)
	fmt.Printf("%s\n%s", resp.Status, answer)
	// Output:
	// 401 Unauthorized
	// {"error":{"code":"wrong_signature","message":"the call is not signed","retryable":true}}
}
