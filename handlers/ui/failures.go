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

// take uses up one of the failed sign-ins that the address has left. The caller gives it back if the sign-in does not
// fail: so many at once are no more than the limit. It fails with a *[TooManyFailuresError] if there is none left.
func (f *failures) take(address string) (giveBack func(), err error) {
	const every = time.Minute / failuresPerMinute
	prefix, now := prefixOf(address), f.now()
	limiter, ok := f.addresses.Get(prefix)
	if !ok {
		limiter = rate.NewLimiter(rate.Every(every), failuresPerMinute)
		if other, found, _ := f.addresses.PeekOrAdd(prefix, limiter); found {
			limiter = other
		}
	}
	taken := limiter.ReserveN(now, 1)
	giveBack = func() { taken.CancelAt(now) }
	if taken.DelayFrom(now) > 0 {
		giveBack()
		return nil, &TooManyFailuresError{every}
	}
	return giveBack, nil
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
