package access

import (
	"maps"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/entities/admin"
)

const (
	// usedInterval is how often a server writes the times of use, in one statement for all keys.
	usedInterval = time.Minute
	// lastWrite limits the last write, which delays shutdown.
	lastWrite = 2 * time.Second
)

// used holds the times of use that are not yet written.
type used struct {
	mu sync.Mutex
	at map[admin.KeyID]time.Time
}

func newUsed() *used { return &used{at: map[admin.KeyID]time.Time{}} }

func (u *used) add(id admin.KeyID, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at[id] = at
}

// take returns the times and removes them.
func (u *used) take() map[admin.KeyID]time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := maps.Clone(u.at)
	clear(u.at)
	return at
}
