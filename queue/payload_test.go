package queue

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/eventlog/blob"
)

// TestPayloadsThatAreAwayCountNoDeliveries: while a key or the bucket cannot be had, a delivery is tried again, and does
// not come nearer to being parked.
func TestPayloadsThatAreAwayCountNoDeliveries(t *testing.T) {
	t.Parallel()
	for err, counts := range map[error]bool{
		encryption.ErrUnavailable: false, blob.ErrUnavailable: false, blob.ErrLost: true, errors.New("another"): true,
	} {
		f := Delivery{}.Failure(fmt.Errorf("read the log: %w", err))
		if f.Reached != counts || f.Parked || !counts && f.After != unreachedBackoff {
			t.Errorf("%v: got %+v; counts: %v", err, f, counts)
		}
	}
}
