package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/signing"
)

const (
	// keysTime is how long a project's signing keys are cached, and so how long it takes until a new key signs and a
	// deleted key stops signing.
	keysTime = 5 * time.Second
	// keysPause is how long a failure to read the keys is cached.
	keysPause = time.Second
	// keysTimeout is the time limit for reading the keys.
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
	// warned is set when the log already mentions that the project has no keys.
	warned bool
}

// NewSigner returns a signer with the keys in the queue's database.
func (q *Queue) NewSigner(now func() time.Time, logger *slog.Logger) *Signer {
	return &Signer{
		read: func(ctx context.Context, project entities.Project) ([]admin.SigningKeySecret, error) {
			return admin.SigningKeySecrets(ctx, pg.NewPool(q.pool), project)
		},
		now: now, logger: logger, projects: map[entities.Project]*projectKeys{},
	}
}

// errUnsigned is the error of a call that was not made because its signing keys could not be read: an unsigned call
// would be refused by the app, and count as a failure of the message.
var errUnsigned = errors.New("sign the call")

// sign signs a request with the given body. It does nothing if the signer is nil or the project has no keys.
func (s *Signer) sign(r *http.Request, project entities.Project, body []byte) error {
	if s == nil {
		return nil
	}
	keys, err := s.keys(r.Context(), project)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnsigned, err)
	}
	signing.Sign(r, body, keys, s.now())
	return nil
}

// keys returns the project's keys, from the cache if it is fresh. Concurrent callers share one read.
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
	// Other callers wait for the result too, so the end of this call must not cancel the read.
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
	if len(p.keys) == 0 && !p.warned {
		s.logger.InfoContext(ctx, "calls are not signed: the project has no signing keys", "project", project)
	}
	p.warned = len(p.keys) == 0
	return p.keys, nil
}
