package access

import (
	"maps"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/entities/admin"
)

const (
	// usedInterval is how often a server writes when keys were used, in one statement for all.
	usedInterval = time.Minute
	// lastWrite is how long the last of these writes may take, which holds up a stop.
	lastWrite = 2 * time.Second
)

// used is when keys were last used, as far as it is not written.
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

// take forgets what it returns.
func (u *used) take() map[admin.KeyID]time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := maps.Clone(u.at)
	clear(u.at)
	return at
}
