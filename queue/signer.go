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
	// keysTime is for how long a project's signing keys are taken for what they were: so long it takes at most until
	// a new key signs and one that was deleted no longer does.
	keysTime = 5 * time.Second
	// keysPause is how long after a failure to read them they are read again.
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

// projectKeys are the keys of a project, as they were read.
type projectKeys struct {
	mu    sync.Mutex
	keys  []signing.Key
	err   error
	until time.Time
	// told says that the log has it that the project has no keys.
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

// unsignedError is of a call that was not made since its keys could not be read.
type unsignedError struct{ cause error }

func (e *unsignedError) Error() string { return fmt.Sprintf("sign the call: %v", e.cause) }

func (e *unsignedError) Unwrap() error { return e.cause }

// sign signs a request with the body. One of a project without keys stays as it is; and so do all, without a signer.
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

// keys are those of the project, or were a moment ago. Those who want the keys of one project wait for one of them to
// read these.
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
	// Others wait for it as well, so the end of this call does not end it.
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
