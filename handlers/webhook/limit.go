package webhook

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rates limits the requests per second that one server accepts; 0 means the default.
type Rates struct {
	// Token is the rate of each token, Server the rate of all tokens together.
	Token, Server int
}

const (
	defaultTokenRate  = 50
	defaultServerRate = 1000
	// burst is how many seconds' worth of requests may arrive at once.
	burst = 2
	// generationSize limits the tokens in one generation of the limiter.
	generationSize = 10_000
)

// ErrTooMany is returned for requests beyond the rates; a [TooManyError] has the time to wait.
var ErrTooMany = errors.New("too many requests")

// TooManyError is an [ErrTooMany] with the time after which the request can be repeated.
type TooManyError struct{ RetryAfter time.Duration }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("too many requests: try again in %s", e.RetryAfter.Round(time.Millisecond))
}

// Is makes errors.Is(err, ErrTooMany) true.
func (e *TooManyError) Is(target error) bool { return target == ErrTooMany }

// tokenHash is the SHA-256 of a token, which may not exist. It bounds the memory per token.
type tokenHash [sha256.Size]byte

// limiter limits the rate of requests by their tokens.
type limiter struct {
	rates Rates

	mu  sync.Mutex
	all *rate.Limiter
	// recent and older are two generations of tokens: when recent is full, it replaces older. Memory is bounded, and
	// tokens in use are kept.
	recent, older map[tokenHash]*rate.Limiter
}

func newLimiter(r Rates) *limiter {
	r.Token, r.Server = cmp.Or(r.Token, defaultTokenRate), cmp.Or(r.Server, defaultServerRate)
	return &limiter{rates: r, all: newBucket(r.Server), recent: map[tokenHash]*rate.Limiter{}}
}

func newBucket(perSecond int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), perSecond*burst)
}

// admit fails with a *[TooManyError] if the request is beyond the rates.
func (l *limiter) admit(token string, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The token's own limit comes first, so that an overused token does not use up the server's rate.
	for _, b := range []*rate.Limiter{l.bucket(sha256.Sum256([]byte(token))), l.all} {
		reservation := b.ReserveN(now, 1)
		if wait := reservation.DelayFrom(now); wait > 0 {
			reservation.CancelAt(now)
			return &TooManyError{RetryAfter: wait}
		}
	}
	return nil
}

func (l *limiter) bucket(k tokenHash) *rate.Limiter {
	b, ok := l.recent[k]
	if ok {
		return b
	}
	if b, ok = l.older[k]; !ok {
		b = newBucket(l.rates.Token)
	}
	if len(l.recent) >= generationSize {
		l.recent, l.older = map[tokenHash]*rate.Limiter{}, l.recent
	}
	l.recent[k] = b
	return b
}
