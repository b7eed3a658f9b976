package handlers

import (
	"cmp"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

const (
	// defaultReaders is how many live readers a project may have in one process. One takes about 50 kB. The number is
	// generous, because an app opens a reader for each of its own visitors who watches a stream.
	defaultReaders = 2000
	// readersRetry is when a client should try again that was one reader too many.
	readersRetry = 10 * time.Second
)

// tooManyReaders returns the error for a client that follows or waits for too much at once.
func tooManyReaders(who string, limit int) error {
	return &problem{
		status: http.StatusTooManyRequests, code: "too_many_readers", retryAfter: readersRetry,
		message: fmt.Sprintf("%s has %d requests here that follow events or streams or wait for runs, and may not have"+
			" more: close some, or raise STEPWELL_READERS", who, limit),
	}
}

// readers limits the live readers of each project, and of each key to half of that, so that a project can be read while
// one of its keys is abused.
type readers struct {
	limit int

	mu       sync.Mutex
	projects map[entities.Project]int
	keys     map[keyOf]int
}

// keyOf identifies a key. The names of clients without a key of their own are the same in all projects.
type keyOf struct {
	project entities.Project
	actor   admin.Actor
}

func newReaders(limit int) *readers {
	return &readers{
		limit: cmp.Or(limit, defaultReaders), projects: map[entities.Project]int{}, keys: map[keyOf]int{},
	}
}

// middleware admits live readers or fails with [tooManyReaders]. A start or message that prefers to wait does not wait
// then. Other requests pass.
func (l *readers) middleware(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		writes := waitsForRun(c)
		if !writes && !isLongPoll(c.Path()) {
			return next(c)
		}
		client := auth.IdentityOf(c)
		key := keyOf{client.Project, client.Actor}
		switch err := l.enter(key); {
		case err == nil:
			defer l.leave(key)
		case writes:
			c.Request().Header.Del("Prefer")
		default:
			return err
		}
		return next(c)
	}
}

func (l *readers) enter(key keyOf) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.projects[key.project] >= l.limit {
		return tooManyReaders("the project", l.limit)
	}
	if perKey := max(1, l.limit/2); l.keys[key] >= perKey {
		return tooManyReaders("the API key", perKey)
	}
	l.projects[key.project]++
	l.keys[key]++
	return nil
}

func (l *readers) leave(key keyOf) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.projects[key.project]--; l.projects[key.project] == 0 {
		delete(l.projects, key.project)
	}
	if l.keys[key]--; l.keys[key] == 0 {
		delete(l.keys, key)
	}
}
