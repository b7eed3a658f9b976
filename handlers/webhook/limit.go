package webhook

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/stepwell-dev/stepwell/entities"
)

// Rates limits the requests per second that one server accepts; 0 means the default.
type Rates struct {
	// Token is the rate of each webhook, Project that of all webhooks of a project.
	Token, Project int
	// Address is the rate at which one public address may try tokens that no webhook has.
	Address int
}

const (
	defaultTokenRate   = 50
	defaultProjectRate = 1000
	defaultAddressRate = 100
	// burst is how many seconds' worth of requests may arrive at once.
	burst = 2
	// remembered is how many tokens, projects and addresses the limiter remembers each.
	remembered = 10_000
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

// limiter limits the rates of requests. Only requests to webhooks that exist count against a token and its project, and
// only others against an address: so strangers who try tokens cannot use up what the senders of webhooks need.
type limiter struct {
	rates Rates
	// tokens has the tokens of webhooks that have been found lately.
	tokens    buckets[tokenHash]
	projects  buckets[entities.Project]
	addresses buckets[netip.Prefix]
}

// tokenHash is the SHA-256 of a project and a token.
type tokenHash [sha256.Size]byte

func newLimiter(r Rates) *limiter {
	r.Token, r.Project = cmp.Or(r.Token, defaultTokenRate), cmp.Or(r.Project, defaultProjectRate)
	r.Address = cmp.Or(r.Address, defaultAddressRate)
	return &limiter{
		rates: r, tokens: newBuckets[tokenHash](r.Token), projects: newBuckets[entities.Project](r.Project),
		addresses: newBuckets[netip.Prefix](r.Address),
	}
}

// sender is the source of a request to a webhook.
type sender struct {
	project entities.Project
	token   tokenHash
	// from is the public address; the zero value if it is not known.
	from netip.Prefix
}

// newSender returns the sender of a request that came from an IP address.
func newSender(project entities.Project, token, address string) sender {
	return sender{project, sha256.Sum256([]byte(string(project) + "/" + token)), publicAddress(address)}
}

// before fails with a *[TooManyError] if the request is not to be looked up. It reports whether the webhook was found
// lately.
func (l *limiter) before(s sender, now time.Time) (known bool, err error) {
	if b, ok := l.tokens.Get(s.token); ok {
		return true, spend(b, now)
	}
	if s.from.IsValid() {
		if b, ok := l.addresses.Get(s.from); ok && b.TokensAt(now) < 1 {
			return false, &TooManyError{RetryAfter: time.Second / time.Duration(l.rates.Address)}
		}
	}
	return false, nil
}

// missed counts a request whose token no webhook has.
func (l *limiter) missed(s sender, now time.Time) {
	l.tokens.Remove(s.token)
	if s.from.IsValid() {
		l.addresses.of(s.from).AllowN(now, 1)
	}
}

// found counts a request to a webhook. It fails with a *[TooManyError].
func (l *limiter) found(s sender, known bool, now time.Time) error {
	if !known {
		if err := spend(l.tokens.of(s.token), now); err != nil {
			return err
		}
	}
	return spend(l.projects.of(s.project), now)
}

// spend takes one request from a bucket.
func spend(b *rate.Limiter, now time.Time) error {
	reservation := b.ReserveN(now, 1)
	if wait := reservation.DelayFrom(now); wait > 0 {
		reservation.CancelAt(now)
		return &TooManyError{RetryAfter: wait}
	}
	return nil
}

// buckets are the token buckets of the keys that were used last.
type buckets[K comparable] struct {
	*lru.Cache[K, *rate.Limiter]

	perSecond int
}

func newBuckets[K comparable](perSecond int) buckets[K] {
	cache, err := lru.New[K, *rate.Limiter](remembered)
	if err != nil {
		panic(err) // only a size below 1 fails
	}
	return buckets[K]{cache, perSecond}
}

// of returns the bucket of a key.
func (b buckets[K]) of(k K) *rate.Limiter {
	if known, ok := b.Get(k); ok {
		return known
	}
	full := rate.NewLimiter(rate.Limit(b.perSecond), b.perSecond*burst)
	if known, ok, _ := b.PeekOrAdd(k, full); ok {
		return known
	}
	return full
}

// publicAddress returns an IP address, or for IPv6 its network, which one sender has for itself. It returns the zero
// value for addresses that are not public: behind them are proxies with many senders.
func publicAddress(address string) netip.Prefix {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Prefix{}
	}
	a = a.Unmap().WithZone("")
	if !a.IsGlobalUnicast() || a.IsPrivate() || sharedAddresses.Contains(a) {
		return netip.Prefix{}
	}
	bits := 64
	if a.Is4() {
		bits = 32
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// sharedAddresses are for networks behind a carrier's or cloud's address translation (RFC 6598).
var sharedAddresses = netip.MustParsePrefix("100.64.0.0/10")
