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

// kicked is a server that gets kicks.
func kicked(t *testing.T, serve http.HandlerFunc) *Kicker {
	t.Helper()
	s := httptest.NewServer(serve)
	t.Cleanup(s.Close)
	k, err := NewKicker(s.URL+"/base/", "the key", time.Minute, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestKickIsThroughWhenTheAnswerBegins: it is not waited for, and not hung up on.
func TestKickIsThroughWhenTheAnswerBegins(t *testing.T) {
	t.Parallel()
	type request struct{ line, key string }
	got, through, whole := make(chan request, 1), make(chan struct{}), make(chan error, 1)
	k := kicked(t, func(w http.ResponseWriter, r *http.Request) {
		got <- request{r.Method + " " + r.RequestURI, r.Header.Get("Authorization")}
		_ = http.NewResponseController(w).Flush()
		<-through
		select {
		case <-r.Context().Done():
		case <-time.After(50 * time.Millisecond): // long enough for a client that hangs up to be seen
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
		t.Errorf("it hung up: %v", err)
	}
}

// TestKickHasPatienceOnlyForSoLong: where the answer comes at its end.
func TestKickHasPatienceOnlyForSoLong(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	k := kicked(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	begun := time.Now()
	k.Kick(t.Context())
	if took := time.Since(begun); took < kickTimeout || took > 20*kickTimeout {
		t.Errorf("it took %s, want about %s", took, kickTimeout)
	}
}

func TestKickThatIsRefused(t *testing.T) {
	t.Parallel()
	answered := make(chan struct{})
	k := kicked(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
		close(answered)
	})
	k.Kick(t.Context()) // which is all that is asked of it
	<-answered
	nobody, err := NewKicker("http://127.0.0.1:1", "", time.Minute, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	nobody.Kick(t.Context())
	(*Kicker)(nil).Kick(t.Context())
}

func TestKickerWantsAnAddress(t *testing.T) {
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
