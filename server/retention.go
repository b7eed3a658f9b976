package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/queue"
)

// retention returns the server's retention. It fails if the archive is misconfigured.
func (s *Server) retention(ctx context.Context) (*upkeep.Retention, error) {
	var store Archive
	if s.Archive != nil {
		var err error
		if store, err = s.Archive(ctx, s.pool); err != nil {
			return nil, fmt.Errorf("STEPWELL_ARCHIVE: %w", err)
		}
	}
	o := upkeep.RetentionOptions{
		Keep: s.Retention, DeleteRelated: queue.DeleteRunMessages, Archive: s.counted(store),
	}
	if s.blobs != nil {
		o.Sweep = s.blobs.Sweep
	}
	return upkeep.NewRetention(s.pool, o), nil
}

// counted counts the runs that the function cannot archive.
func (s *Server) counted(store Archive) Archive {
	if store == nil {
		return nil
	}
	return func(ctx context.Context, p entities.Project, id entities.RunID) (upkeep.RunSize, error) {
		size, err := store(ctx, p, id)
		if err != nil && !errors.Is(err, entities.ErrConflict) && ctx.Err() == nil {
			s.archiveFailures.Add(1)
		}
		return size, err
	}
}
