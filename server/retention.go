package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/runfile"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/queue"
)

// retention returns the server's retention. It fails if the archive is misconfigured.
func (s *Server) retention(ctx context.Context) (*upkeep.Retention, error) {
	o := upkeep.RetentionOptions{Keep: s.Retention, Listed: s.ArchiveListed, DeleteRelated: queue.DeleteRunMessages}
	if s.archive != nil {
		if err := s.checkArchive(ctx); err != nil {
			return nil, fmt.Errorf("STEPWELL_ARCHIVE: %w", err)
		}
		o.Archive = s.counted(s.archive.Store)
	}
	if s.blobs != nil {
		o.Sweep = s.blobs.Sweep
	}
	return upkeep.NewRetention(s.pool, o), nil
}

// openArchive opens the archive, if there is one, and returns the reader of its logs.
func (s *Server) openArchive() (logs *runfile.Logs, err error) {
	if s.Archive == nil {
		return runfile.NewLogs(nil, s.payloads), nil
	}
	if s.archive, err = s.Archive(s.pool); err != nil {
		return nil, fmt.Errorf("STEPWELL_ARCHIVE: %w", err)
	}
	return runfile.NewLogs(s.archive.Open, s.payloads), nil
}

// checkArchive fails if runs cannot be archived because of what is configured.
func (s *Server) checkArchive(ctx context.Context) error {
	err := s.archive.Check(ctx)
	if errors.Is(err, runfile.ErrUnreachable) { // deliveries do not depend on it
		s.Logger.WarnContext(ctx, "archive is unreachable: ended runs are kept until it is back", "error", err)
		return nil
	}
	return err
}

type storeRun = func(context.Context, entities.Project, entities.RunID) (upkeep.RunSize, error)

// counted counts the runs that the function cannot archive.
func (s *Server) counted(store storeRun) storeRun {
	return func(ctx context.Context, p entities.Project, id entities.RunID) (upkeep.RunSize, error) {
		size, err := store(ctx, p, id)
		if err != nil && !errors.Is(err, entities.ErrConflict) && ctx.Err() == nil {
			s.archiveFailures.Add(1)
		}
		return size, err
	}
}
