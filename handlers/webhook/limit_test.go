package webhook

import (
	"errors"
	"strconv"
	"testing"
	"time"
)

func TestRateLimits(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	l := newLimiter(Rates{Token: 2, Server: 5})
	admitted := func(token string, tries int) (n int) {
		for range tries {
			err := l.admit(token, now)
			if err == nil {
				n++
				continue
			}
			tooMany := (*TooManyError)(nil)
			if !errors.As(err, &tooMany) || !errors.Is(err, ErrTooMany) || tooMany.RetryAfter <= 0 || tooMany.RetryAfter > time.Second {
				t.Errorf("got %v", err)
			}
		}
		return n
	}
	if got := admitted("a", 100); got != 2*burst {
		t.Errorf("admitted %d of 100 requests of one token, want %d", got, 2*burst)
	}
	// Rejected requests of "a" do not use up the server's rate.
	if got := admitted("b", 100) + admitted("c", 100); got != 5*burst-2*burst {
		t.Errorf("admitted %d requests of other tokens, want %d", got, 5*burst-2*burst)
	}
	now = now.Add(500 * time.Millisecond)
	if got := admitted("a", 100); got != 1 {
		t.Errorf("admitted %d requests half a second later, want 1", got)
	}
}

// TestLimiterForgetsUnusedTokens checks that memory is bounded, and that a used token is kept.
func TestLimiterForgetsUnusedTokens(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	l := newLimiter(Rates{Token: 1, Server: 100 * generationSize})
	for range burst {
		if err := l.admit("used", now); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 * generationSize {
		if err := l.admit(strconv.Itoa(i), now); err != nil {
			t.Fatal(err)
		}
		if i%(generationSize/2) == 0 && l.admit("used", now) == nil {
			t.Fatalf("the used token was forgotten after %d others", i)
		}
	}
	if n := len(l.recent) + len(l.older); n > 2*generationSize {
		t.Errorf("the limiter has %d tokens", n)
	}
}
