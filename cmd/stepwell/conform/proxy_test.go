package conform

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// TestFaultsOfTheProxy sends four calls of one run by each fault.
func TestFaultsOfTheProxy(t *testing.T) {
	t.Parallel()
	for f, want := range map[fault]struct {
		received int64
		answers  string
	}{
		faultNone:    {4, "200 200 200 200"},
		faultDoubled: {8, "200 200 200 200"},
		faultLost:    {4, "lost 200 lost 200"},
	} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			var received atomic.Int64
			function := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if received.Add(1); r.URL.RequestURI() != "/a%2Fb?c=d" || r.Header.Get("Signature") != "s" || string(body) != "{}" {
					t.Errorf("the function got %s %v %s", r.URL.RequestURI(), r.Header, body)
				}
			}))
			t.Cleanup(function.Close)
			at, err := url.Parse(function.URL + "/a%2Fb?c=d")
			if err != nil {
				t.Fatal(err)
			}
			p, err := newProxy(t.Context(), f, at)
			if err != nil {
				t.Fatal(err)
			}
			var answers []string
			for range 4 {
				answers = append(answers, callOnce(t, p.url))
			}
			if got := strings.Join(answers, " "); got != want.answers || received.Load() != want.received {
				t.Errorf("the answers are %s, and the function got %d calls, want %s and %d",
					got, received.Load(), want.answers, want.received)
			}
		})
	}
}

// callOnce makes a call, and returns the status of the answer, or that it was lost.
func callOnce(t *testing.T, at string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Signature", "s")
	r.Header.Set("Stepwell-Run", "wrun_1")
	r.GetBody = nil // or the client would repeat it by itself
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "lost"
	}
	_ = resp.Body.Close()
	return resp.Status[:3]
}
