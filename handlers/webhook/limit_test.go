package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

// tries sends requests to a token, and returns how many were admitted. If found, a webhook has the token.
func (l *limiter) tries(t *testing.T, s sender, found bool, now time.Time, tries int) (n int) {
	t.Helper()
	for range tries {
		known, err := l.before(s, now)
		switch {
		case err != nil:
		case found:
			err = l.found(s, known, now)
		default:
			l.missed(s, now)
		}
		if err == nil {
			n++
			continue
		}
		tooMany := (*incoming.TooManyError)(nil)
		if !errors.As(err, &tooMany) || !errors.Is(err, incoming.ErrTooMany) || tooMany.RetryAfter <= 0 || tooMany.RetryAfter > time.Second {
			t.Errorf("got %v", err)
		}
	}
	return n
}

func TestRateLimits(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	l := newLimiter(Rates{Token: 2, Project: 5, Address: 3})
	admitted := func(project entities.Project, token, address string, found bool) int {
		return l.tries(t, newSender(project, token, address), found, now, 100)
	}
	want := func(what string, got, want int) {
		t.Helper()
		check.Equal(t, fmt.Sprintf("%s: requests of 100 that are admitted", what), got, want*burst)
	}
	want("one webhook", admitted("p", "a", "192.0.2.1", true), 2)
	want("others of its project", admitted("p", "b", "192.0.2.1", true)+admitted("p", "c", "192.0.2.1", true), 5-2)
	want("another project", admitted("q", "a", "192.0.2.1", true), 2)
	// Tokens that nobody has count against the address only.
	want("unknown tokens of one address", admitted("r", "x", "203.0.113.1", false), 3)
	want("unknown tokens of the same address", admitted("r", "y", "203.0.113.1", false), 0)
	want("a webhook that was not found yet", admitted("r", "z", "203.0.113.1", true), 0)
	want("another address", admitted("r", "z", "203.0.113.2", true), 2)
	want("a known webhook, one second later", l.tries(t, newSender("r", "z", "203.0.113.1"), true,
		now.Add(burst*time.Second), 100), 2)
	want("an IPv6 network", admitted("r", "x", "2001:db8::1", false)+admitted("r", "x", "2001:db8::2", false), 3)
	check.Equal(t, "tokens that a proxy tries", admitted("r", "x", "10.0.0.1", false), 100)
	now = now.Add(500 * time.Millisecond)
	check.Equal(t, "admitted", admitted("p", "a", "192.0.2.1", true), 1)
}

// TestLimiterForgetsUnusedTokens checks that memory is bounded, and that a used token is kept.
func TestLimiterForgetsUnusedTokens(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	l := newLimiter(Rates{Token: 1, Project: 100 * incoming.MaxBuckets})
	used := newSender("p", "used", "")
	l.tries(t, used, true, now, burst)
	for i := range 3 * incoming.MaxBuckets {
		l.tries(t, newSender("p", fmt.Sprint(i), fmt.Sprintf("203.%d.%d.%d", i>>16, i>>8&255, i&255)), i%2 == 0, now, 1)
		if i%(incoming.MaxBuckets/2) == 0 && l.tries(t, used, true, now, 1) > 0 {
			t.Fatalf("the used token was forgotten after %d others", i)
		}
	}
	if l.tokens.Len() > incoming.MaxBuckets || l.addresses.Len() > incoming.MaxBuckets {
		t.Errorf("the limiter has %d tokens and %d addresses", l.tokens.Len(), l.addresses.Len())
	}
}

func TestPublicAddress(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"203.0.113.9": "203.0.113.9/32", "2001:db8:1:2:3::4": "2001:db8:1:2::/64",
		"::ffff:203.0.113.9": "203.0.113.9/32",
		"127.0.0.1":          "", "10.1.2.3": "", "::1": "", "fd00::1": "", "fe80::1%eth0": "",
		"100.64.1.1": "", "@": "", "": "",
	} {
		got := publicAddress(remote)
		if text := got.String(); got.IsValid() && text != want || !got.IsValid() && want != "" {
			t.Errorf("%s: got %s, want %q", remote, text, want)
		}
	}
}

// TestWaitingRequestsLeaveRoom checks the shares of a webhook and of a project.
func TestWaitingRequestsLeaveRoom(t *testing.T) {
	t.Parallel()
	w := newWaits()
	enter := func(project entities.Project, token string) (n int) {
		for {
			if _, ok := w.enter(target{project: project, token: token}); !ok {
				return n
			}
			n++
		}
	}
	greedy, sibling, other := enter("p", "a"), enter("p", "b"), enter("q", "a")
	if greedy != 500 || sibling < 100 || other < 50 {
		t.Errorf("the first webhook holds %d, one of the same project %d, one of another %d", greedy, sibling, other)
	}
	leave, ok := w.enter(target{project: "r", token: "a"})
	if !ok {
		t.Fatal("there is no room for a third project")
	}
	leave()
}

// TestRequestBeyondTheSlotsIsAnsweredAtOnce: while as many requests wait as may, the next one to a trigger learns its
// run at once. It does not fail, since the run is started.
func TestRequestBeyondTheSlotsIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	s := &Server{waits: newWaits()} // without a log: a request that waited would crash
	to := target{project: "p", token: "a", trigger: &trigger.Trigger{}}
	to.trigger.Options.Respond = time.Minute
	for ok := true; ok; {
		_, ok = s.waits.enter(to)
	}
	w := httptest.NewRecorder()
	c := echo.New().NewContext(httptest.NewRequest(http.MethodPost, "/hooks/a", nil), w)
	check.NoError(t, s.answerWithRun(call{Context: c, target: to}, startedJSON{"hreq_1", "wrun_1"}))
	want := `{"request":"hreq_1","runId":"wrun_1"}`
	if got := strings.TrimSpace(w.Body.String()); w.Code != http.StatusAccepted || got != want {
		t.Errorf("got %d %s, want 202 %s", w.Code, got, want)
	}
}
