package handlers

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// newTestKicker returns a kicker for a test server.
func newTestKicker(t *testing.T, serve http.HandlerFunc) *Kicker {
	t.Helper()
	s := httptest.NewServer(serve)
	t.Cleanup(s.Close)
	k, err := NewKicker(s.URL+"/base/", "the key", time.Minute, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestKickReturnsWhenTheResponseBegins checks that the request then goes on.
func TestKickReturnsWhenTheResponseBegins(t *testing.T) {
	t.Parallel()
	type request struct{ line, key string }
	got, through, whole := make(chan request, 1), make(chan struct{}), make(chan error, 1)
	k := newTestKicker(t, func(w http.ResponseWriter, r *http.Request) {
		got <- request{r.Method + " " + r.RequestURI, r.Header.Get("Authorization")}
		_ = http.NewResponseController(w).Flush()
		<-through
		select {
		case <-r.Context().Done():
		case <-time.After(50 * time.Millisecond): // long enough to notice that the client disconnects
		}
		_, _ = io.WriteString(w, "{}")
		whole <- r.Context().Err()
	})
	k.Kick(t.Context())
	close(through)
	if want := (request{"POST /base/internal/drain", "Bearer the key"}); <-got != want {
		t.Errorf("want %v", want)
	}
	if err := <-whole; err != nil {
		t.Errorf("the client disconnected: %v", err)
	}
}

// TestKickTimesOut checks a platform that buffers responses.
func TestKickTimesOut(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	k := newTestKicker(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	begun := time.Now()
	k.Kick(t.Context())
	if took := time.Since(begun); took < kickTimeout || took > 20*kickTimeout {
		t.Errorf("it took %s, want about %s", took, kickTimeout)
	}
}

func TestFailedKickIsHarmless(t *testing.T) {
	t.Parallel()
	answered := make(chan struct{})
	k := newTestKicker(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
		close(answered)
	})
	k.Kick(t.Context()) // must return
	<-answered
	unreachable, err := NewKicker("http://127.0.0.1:1", "", time.Minute, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	unreachable.Kick(t.Context())
	(*Kicker)(nil).Kick(t.Context())
}

func TestKickerRejectsInvalidURLs(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "here", "//host", "ftp://host", "http://", "http://%", "http://host/?q=secret", "http://host/#f", "http://me:secret@host",
	} {
		if _, err := NewKicker(bad, "", time.Minute, nil); err == nil || !strings.Contains(err.Error(), "URL") ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}
