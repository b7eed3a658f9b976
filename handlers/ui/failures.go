package ui

import (
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

const (
	// failuresPerMinute is how many failed sign-ins an address has.
	failuresPerMinute = 20
	// failureInterval is how often it gets one back.
	failureInterval = time.Minute / failuresPerMinute
)

// failures limits the failed sign-ins of each address.
type failures struct {
	now       func() time.Time
	addresses incoming.Buckets[netip.Prefix]
}

func newFailures(now func() time.Time) failures {
	return failures{now, incoming.NewBuckets[netip.Prefix](rate.Every(failureInterval), failuresPerMinute)}
}

// take uses up one of the failed sign-ins that the address has left. The caller gives it back if the sign-in does not
// fail: so many at once are no more than the limit. It fails with a *[incoming.TooManyError] if there is none left.
func (f failures) take(address string) (giveBack func(), err error) {
	now := f.now()
	taken := f.addresses.Of(incoming.Network(address)).ReserveN(now, 1)
	giveBack = func() { taken.CancelAt(now) }
	if taken.DelayFrom(now) > 0 {
		giveBack()
		return nil, &incoming.TooManyError{What: "failed sign-ins from your address", RetryAfter: failureInterval}
	}
	return giveBack, nil
}
