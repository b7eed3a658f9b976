package handlers

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// newTestKicker returns a kicker for a test server.
func newTestKicker(t *testing.T, serve http.HandlerFunc) *Kicker {
	t.Helper()
	s := httptest.NewServer(serve)
	t.Cleanup(s.Close)
	k := check.Value(NewKicker(s.URL+"/base/", "the key", time.Minute, time.Now, slog.New(slog.DiscardHandler)))(t)
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
	r := <-got
	token, _ := strings.CutPrefix(r.key, "Bearer ")
	if r.line != "POST /base/internal/drain" || strings.Contains(r.key, "the key") || !k.key.verify(token, time.Now()) {
		t.Errorf("got %v, want a request with a token", r)
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
	unreachable := check.Value(NewKicker("http://127.0.0.1:1", "", time.Minute, time.Now, slog.New(slog.DiscardHandler)))(t)
	unreachable.Kick(t.Context())
	(*Kicker)(nil).Kick(t.Context())
}

func TestKickerRejectsInvalidURLs(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"http://1.1.1.1", "http://[2606:4700::1111]:8788/base", "http://[::ffff:1.1.1.1]",
		"", "here", "//host", "ftp://host", "http://", "http://%", "http://host/?q=secret", "http://host/#f", "http://me:secret@host",
	} {
		if _, err := NewKicker(bad, "", time.Minute, time.Now, nil); err == nil || !strings.Contains(err.Error(), "URL") ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

// TestKickRefusesPublicAddressesOverHTTP: a name is checked when it is resolved.
func TestKickRefusesPublicAddressesOverHTTP(t *testing.T) {
	t.Parallel()
	for address, allowed := range map[string]bool{
		"127.0.0.1:80": true, "10.1.2.3:80": true, "[::1]:80": true, "[fd00::1]:80": true,
		"1.1.1.1:80": false, "[2606:4700::1111]:80": false,
	} {
		if err := refusePublic(t.Context(), "tcp", address, nil); (err == nil) != allowed {
			t.Errorf("%s: got %v", address, err)
		}
	}
	for _, url := range []string{"https://1.1.1.1", "https://name.test", "http://name.test", "http://10.0.0.1", "http://127.0.0.1:8788"} {
		if _, err := NewKicker(url, "", time.Minute, time.Now, nil); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestSelfTokens(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	key := newSelfKey("an API key of the server")
	token := key.token(now)
	for name, tt := range map[string]struct {
		key   selfKey
		token string
		at    time.Time
		want  bool
	}{
		"valid":          {key, token, now, true},
		"slow clock":     {key, token, now.Add(-time.Hour), true},
		"almost expired": {key, token, now.Add(selfValidity - time.Second), true},
		"expired":        {key, token, now.Add(selfValidity), false},
		"later expiry":   {key, strings.Replace(token, "_18", "_19", 1), now, false},
		"cut":            {key, token[:len(token)-1], now, false},
		"no MAC":         {key, "drain_1800000300", now, false},
		"empty":          {key, "", now, false},
		"API key":        {key, "an API key of the server", now, false},
		"other server":   {newSelfKey("another API key of a server"), token, now, false},
		"open server":    {selfKey{}, selfKey{}.token(now), now, false},
	} {
		check.Equal(t, name, tt.key.verify(tt.token, tt.at), tt.want)
	}
}
