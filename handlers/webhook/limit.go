package webhook

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rates bound how many requests one server lets in. What is zero is the default.
type Rates struct {
	// Token is how many requests a second one token gets in the long run, Server how many all get.
	Token, Server int
}

const (
	defaultTokenRate  = 50
	defaultServerRate = 1000
	// burst is how many seconds' worth of requests may come at once.
	burst = 2
	// generation is how many tokens are known by their use until the oldest half is forgotten.
	generation = 10_000
)

// ErrTooMany is of requests that come too fast; a [TooManyError] says when to come back.
var ErrTooMany = errors.New("too many requests")

// TooManyError is an [ErrTooMany] that says when there is room again.
type TooManyError struct{ RetryAfter time.Duration }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("too many requests: try again in %s", e.RetryAfter.Round(time.Millisecond))
}

// Is makes errors.Is(err, ErrTooMany) true.
func (e *TooManyError) Is(target error) bool { return target == ErrTooMany }

// key stands for a token, whether or not anybody has it, in bounded space.
type key [sha256.Size]byte

// limiter counts requests by their tokens.
type limiter struct {
	rates Rates

	mu  sync.Mutex
	all *rate.Limiter
	// recent are the tokens used since older was recent: memory is bounded, and a token in use stays known.
	recent, older map[key]*rate.Limiter
}

func newLimiter(r Rates) *limiter {
	if r.Token == 0 {
		r.Token = defaultTokenRate
	}
	if r.Server == 0 {
		r.Server = defaultServerRate
	}
	return &limiter{rates: r, all: newBucket(r.Server), recent: map[key]*rate.Limiter{}}
}

func newBucket(perSecond int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), perSecond*burst)
}

// admit counts a request. It fails with a *[TooManyError].
func (l *limiter) admit(token string, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The token first: one that is used too much takes nothing from the others.
	for _, b := range []*rate.Limiter{l.bucket(sha256.Sum256([]byte(token))), l.all} {
		r := b.ReserveN(now, 1)
		if wait := r.DelayFrom(now); wait > 0 {
			r.CancelAt(now)
			return &TooManyError{RetryAfter: wait}
		}
	}
	return nil
}

func (l *limiter) bucket(k key) *rate.Limiter {
	b, ok := l.recent[k]
	if ok {
		return b
	}
	if b, ok = l.older[k]; !ok {
		b = newBucket(l.rates.Token)
	}
	if len(l.recent) >= generation {
		l.recent, l.older = map[key]*rate.Limiter{}, l.recent
	}
	l.recent[k] = b
	return b
}
