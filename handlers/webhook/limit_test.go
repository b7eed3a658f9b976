package webhook

import (
	"errors"
	"strconv"
	"testing"
	"time"
)

func TestLimit(t *testing.T) {
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
			many := (*TooManyError)(nil)
			if !errors.As(err, &many) || !errors.Is(err, ErrTooMany) || many.RetryAfter <= 0 || many.RetryAfter > time.Second {
				t.Errorf("got %v", err)
			}
		}
		return n
	}
	if got := admitted("a", 100); got != 2*burst {
		t.Errorf("one token got %d of 100, want %d", got, 2*burst)
	}
	// What "a" was refused it took from nobody.
	if got := admitted("b", 100) + admitted("c", 100); got != 5*burst-2*burst {
		t.Errorf("the others got %d, want %d", got, 5*burst-2*burst)
	}
	now = now.Add(500 * time.Millisecond)
	if got := admitted("a", 100); got != 1 {
		t.Errorf("half a second later it got %d, want 1", got)
	}
}

// TestLimitForgets tokens that are not used, in bounded memory, and none that is.
func TestLimitForgets(t *testing.T) {
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
			t.Fatalf("after %d others it was forgotten", i)
		}
	}
	if n := len(l.recent) + len(l.older); n > 2*generationSize {
		t.Errorf("it knows %d tokens", n)
	}
}
