package ui

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

const (
	// failuresPerMinute is how many failed sign-ins an address has.
	failuresPerMinute = 20
	// remembered is how many addresses are remembered.
	remembered = 10_000
	// ipv6Network is the size of the networks that count as one address: a customer usually gets one.
	ipv6Network = 64
)

// ErrTooManyFailures is returned for sign-ins from an address with too many failed ones; a [TooManyFailuresError] has
// the time to wait.
var ErrTooManyFailures = errors.New("too many failed sign-ins")

// TooManyFailuresError is an [ErrTooManyFailures] with the time after which the request can be repeated.
type TooManyFailuresError struct{ RetryAfter time.Duration }

func (e *TooManyFailuresError) Error() string {
	return fmt.Sprintf("too many failed sign-ins from your address: try again in %s", e.RetryAfter.Round(time.Second))
}

// Is makes errors.Is(err, ErrTooManyFailures) true.
func (e *TooManyFailuresError) Is(target error) bool { return target == ErrTooManyFailures }

// failures limits the failed sign-ins of each address.
type failures struct {
	now       func() time.Time
	addresses *lru.Cache[netip.Prefix, *rate.Limiter]
}

func newFailures(now func() time.Time) *failures {
	addresses, err := lru.New[netip.Prefix, *rate.Limiter](remembered)
	if err != nil {
		panic(err) // only a size below 1 fails
	}
	return &failures{now, addresses}
}

// check fails with a *[TooManyFailuresError] if the address has none left.
func (f *failures) check(address string) error {
	limiter, ok := f.addresses.Get(prefixOf(address))
	if !ok || limiter.TokensAt(f.now()) >= 1 {
		return nil
	}
	return &TooManyFailuresError{time.Minute / failuresPerMinute}
}

// add counts a failed sign-in.
func (f *failures) add(address string) {
	prefix := prefixOf(address)
	limiter, ok := f.addresses.Get(prefix)
	if !ok {
		limiter = rate.NewLimiter(rate.Every(time.Minute/failuresPerMinute), failuresPerMinute)
		f.addresses.Add(prefix, limiter)
	}
	limiter.AllowN(f.now(), 1)
}

// prefixOf returns the network of an address that counts as one; the zero value if it is not an IP address.
func prefixOf(address string) netip.Prefix {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Prefix{}
	}
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = ipv6Network
	}
	prefix, _ := addr.Prefix(bits) // a length of the address's own family is valid
	return prefix
}
