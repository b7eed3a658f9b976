package incoming

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// ErrTooMany is returned for requests beyond a rate; a [TooManyError] has the time to wait.
var ErrTooMany = errors.New("too many requests")

// TooManyError is an [ErrTooMany] with the time after which the request can be repeated.
type TooManyError struct {
	// What there is too much of.
	What       string
	RetryAfter time.Duration
}

func (e *TooManyError) Error() string {
	return fmt.Sprintf("too many %s: try again in %s", e.What, e.RetryAfter.Round(time.Millisecond))
}

// Is makes errors.Is(err, ErrTooMany) true.
func (e *TooManyError) Is(target error) bool { return target == ErrTooMany }

// MaxBuckets limits the keys that [Buckets] remember.
const MaxBuckets = 10_000

// Buckets are the token buckets of the keys that were used last.
type Buckets[K comparable] struct {
	*lru.Cache[K, *rate.Limiter]

	perSecond rate.Limit
	burst     int
}

// NewBuckets returns buckets for a rate, in which burst requests may arrive at once.
func NewBuckets[K comparable](perSecond rate.Limit, burst int) Buckets[K] {
	cache, err := lru.New[K, *rate.Limiter](MaxBuckets)
	if err != nil {
		panic(err) // only a size below 1 fails
	}
	return Buckets[K]{cache, perSecond, burst}
}

// Of returns the bucket of a key.
func (b Buckets[K]) Of(k K) *rate.Limiter {
	if known, ok := b.Get(k); ok {
		return known
	}
	full := rate.NewLimiter(b.perSecond, b.burst)
	if known, ok, _ := b.PeekOrAdd(k, full); ok {
		return known
	}
	return full
}

// Network returns the network that one client usually has for itself: an IPv4 address, or 64 bits of an IPv6 address.
// It is the zero value if the text is not an IP address.
func Network(address string) netip.Prefix {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Prefix{}
	}
	addr = addr.Unmap().WithZone("")
	return netip.PrefixFrom(addr, min(addr.BitLen(), 64)).Masked()
}
