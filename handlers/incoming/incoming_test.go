package incoming

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

func TestPathParamIsDecodedOnce(t *testing.T) {
	t.Parallel()
	e := echo.New()
	e.GET("/:name", func(c echo.Context) error {
		name, err := PathParam(c, "name")
		if err != nil {
			return c.NoContent(http.StatusBadRequest)
		}
		return c.String(http.StatusOK, name)
	})
	for path, want := range map[string]string{
		"/a": "a", "/a%20b": "a b", "/a%2Fb": "a/b", "/a%2520b": "a%20b", "/a%252Fb%2F": "a%2Fb/", "/caf%C3%A9": "café",
	} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusOK || w.Body.String() != want {
			t.Errorf("%s: got %d %q, want %q", path, w.Code, w.Body, want)
		}
	}
}

func TestAcceptsGzip(t *testing.T) {
	t.Parallel()
	for accepts, want := range map[string]bool{
		"": false, "br": false, "gzip": true, "br, GZIP": true, "gzip;q=0.5": true, "br, gzip; q=0": false, "gzip;q=0.0": false,
		"x-gzip-no": false, "identity;q=1, gzip;level=1": true,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", accepts)
		check.Equal(t, fmt.Sprint(accepts), AcceptsGzip(r), want)
	}
}

// TestAbortReadEndsAStalledBody checks a client that never sends the rest of its body.
func TestAbortReadEndsAStalledBody(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	e := echo.New()
	e.POST("/", func(c echo.Context) error {
		timeout := time.AfterFunc(10*time.Millisecond, AbortRead(c))
		defer timeout.Stop()
		_, err := io.ReadAll(c.Request().Body)
		failed <- err
		return err
	})
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	body, sender := io.Pipe()
	t.Cleanup(func() { _ = sender.Close() })
	r := check.Value(http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body))(t)
	go func() {
		if resp, err := server.Client().Do(r); err == nil {
			_ = resp.Body.Close()
		}
	}()
	if err := <-failed; err == nil {
		t.Error("the read succeeded")
	}
}

func TestAddressesCountByNetwork(t *testing.T) {
	t.Parallel()
	for a, b := range map[string]string{"10.0.0.1": "::ffff:10.0.0.1", "2001:db8::1": "2001:db8::2", "nothing": ""} {
		if Network(a) != Network(b) {
			t.Errorf("%s and %s count apart", a, b)
		}
	}
	if Network("10.0.0.1") == Network("10.0.0.2") {
		t.Error("two addresses count as one")
	}
}

func TestPreferredWait(t *testing.T) {
	t.Parallel()
	for preferences, want := range map[string]time.Duration{
		"": 0, "wait=10": 10 * time.Second, "respond-async, Wait = 7; x=y": 7 * time.Second, "wait": 0, "wait=x": 0, "wait=-1": 0,
		"wait=1.5": 0, "await=3": 0, "wait=3, wait=4": 3 * time.Second, "wait=99999999999": 65535 * time.Second,
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Prefer", preferences)
		check.Equal(t, fmt.Sprint(preferences), PreferredWait(r), want)
	}
}
