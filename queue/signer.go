package queue

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/queue/signing"
)

const (
	// keysTime is how long a project's signing keys are cached: a new key signs, and a deleted one stops signing, within
	// this time.
	keysTime = 5 * time.Second
	// keysPause is how long to wait after a failure to read them.
	keysPause = time.Second
	// keysTimeout is how long reading them may take.
	keysTimeout = 5 * time.Second
)

// Signer signs calls with the keys of their project.
type Signer struct {
	read   func(context.Context, entities.Project) ([]admin.SigningKeySecret, error)
	now    func() time.Time
	logger *slog.Logger

	mu       sync.Mutex
	projects map[entities.Project]*projectKeys
}

// projectKeys is the cache of a project's keys.
type projectKeys struct {
	mu    sync.Mutex
	keys  []signing.Key
	err   error
	until time.Time
	// told is set when it was logged that the project has no keys.
	told bool
}

// NewSigner makes a signer with the keys in the queue's database.
func NewSigner(q *Queue, now func() time.Time, logger *slog.Logger) *Signer {
	return &Signer{
		read: func(ctx context.Context, project entities.Project) ([]admin.SigningKeySecret, error) {
			return admin.SigningKeySecrets(ctx, q.pool, project)
		},
		now: now, logger: logger, projects: map[entities.Project]*projectKeys{},
	}
}

// unsignedError is the error of a call that was not made because its keys could not be read.
type unsignedError struct{ cause error }

func (e *unsignedError) Error() string { return fmt.Sprintf("sign the call: %v", e.cause) }

func (e *unsignedError) Unwrap() error { return e.cause }

// sign signs a request with the body. It does nothing for a project without keys, or without a signer.
func (s *Signer) sign(r *http.Request, project entities.Project, body []byte) error {
	if s == nil {
		return nil
	}
	keys, err := s.keys(r.Context(), project)
	if err != nil {
		return &unsignedError{err}
	}
	signing.Sign(r, body, keys, s.now())
	return nil
}

// keys returns the project's keys, which may be cached. Concurrent callers wait for one of them to read the keys.
func (s *Signer) keys(ctx context.Context, project entities.Project) ([]signing.Key, error) {
	s.mu.Lock()
	p := s.projects[project]
	if p == nil {
		p = &projectKeys{}
		s.projects[project] = p
	}
	s.mu.Unlock()

	p.mu.Lock()
	defer p.mu.Unlock()
	now := s.now()
	if now.Before(p.until) {
		return p.keys, p.err
	}
	// Others wait for the result as well, so it outlives this call.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysTimeout)
	defer cancel()
	read, err := s.read(ctx, project)
	if p.keys, p.err, p.until = nil, err, now.Add(keysTime); err != nil {
		p.until = now.Add(keysPause)
		return nil, err
	}
	for _, k := range read {
		p.keys = append(p.keys, signing.Key{ID: k.ID, Secret: k.Secret})
	}
	if len(p.keys) == 0 && !p.told {
		s.logger.InfoContext(ctx, "calls are not signed: the project has no signing keys", "project", project)
	}
	p.told = len(p.keys) == 0
	return p.keys, nil
}
