package engine

import (
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
)

const (
	// maxRemembered limits the signals of a project that this process stores in [store.Remembered] for nothing but runs
	// that will listen, in bytes.
	maxRemembered = 64 << 20
	// rememberedRow is about how many bytes a signal takes besides its data.
	rememberedRow = 512
)

// remembering counts what projects have stored for runs that will listen.
type remembering struct {
	mu    sync.Mutex
	until time.Time
	bytes map[entities.Project]int64 // since a minute before until
}

// fits reports whether a signal with data of the size is remembered, and counts it if so.
func (r *remembering) fits(project entities.Project, size int, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !now.Before(r.until) {
		r.until, r.bytes = now.Add(store.Remembered), map[entities.Project]int64{}
	}
	all := r.bytes[project] + int64(size) + rememberedRow
	if all > maxRemembered {
		return false
	}
	r.bytes[project] = all
	return true
}
