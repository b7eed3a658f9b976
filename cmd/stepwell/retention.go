package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/archive"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

type retentionCmd struct {
	Set    setRetentionCmd    `cmd:"" help:"Set how long the ended runs of a project are kept."`
	List   listRetentionCmd   `cmd:"" help:"List the projects with their own retention."`
	Remove removeRetentionCmd `cmd:"" help:"Return a project to the default of STEPWELL_RETENTION."`
}

// retention returns the server's retention. It fails if the archive is misconfigured.
func (s *server) retention(ctx context.Context) (*upkeep.Retention, error) {
	store, err := s.archive(ctx)
	if err != nil {
		return nil, fmt.Errorf("STEPWELL_ARCHIVE: %w", err)
	}
	return upkeep.NewRetention(s.pool, upkeep.RetentionOptions{
		Keep: s.config.Retention, DeleteRelated: queue.DeleteRunMessages, Archive: s.counted(store),
	}), nil
}

// counted counts the runs that the function cannot archive.
func (s *server) counted(store archiveFunc) archiveFunc {
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

type archiveFunc = func(context.Context, entities.Project, entities.RunID) (upkeep.RunSize, error)

// archive returns the function that archives a run, or nil if archiving is disabled.
func (s *server) archive(ctx context.Context) (archiveFunc, error) {
	maintainer := upkeep.NewMaintainer(s.pool, time.Now)
	switch location := s.config.Archive; {
	case location == "":
		return nil, nil
	case !archive.IsBucket(location):
		folder, err := archive.NewFolder(location, maintainer)
		if err != nil {
			return nil, err
		}
		return folder.Store, nil
	default:
		bucket, err := archive.NewBucket(location, s.config.AWS.s3(), maintainer)
		if err != nil {
			return nil, err
		}
		err = bucket.Check(ctx)
		if errors.Is(err, archive.ErrUnreachable) {
			// Deliveries do not depend on the archive.
			s.logger.WarnContext(ctx, "archive is unreachable: ended runs are kept until it is back", "error", err)
			err = nil
		}
		return bucket.Store, err
	}
}

const forever = "forever"

type setRetentionCmd struct {
	Project entities.Project `arg:"" help:"The project, such as default."`
	Keep    string           `arg:"" help:"A duration such as 720h, or forever."`
}

// Run stores the project's retention.
func (c setRetentionCmd) Run(ctx context.Context, stdout io.Writer, config config) error {
	retention := admin.Retention{Project: c.Project}
	if c.Keep != forever {
		keep, err := time.ParseDuration(c.Keep)
		if err != nil {
			return fmt.Errorf("%q is neither a duration such as 720h nor forever", c.Keep)
		}
		retention.Keep = &keep
	}
	return withPool(ctx, config, func(pool *pgxpool.Pool) error {
		if err := admin.PutRetention(admin.WithActor(ctx, admin.ActorCLI), pool, retention); err != nil {
			return err
		}
		_, err := fmt.Fprintf(stdout, "retention of %s: %s\n", c.Project, formatKeep(retention.Keep))
		return err
	})
}

type listRetentionCmd struct{}

// Run lists the projects' retentions.
func (listRetentionCmd) Run(ctx context.Context, stdout io.Writer, config config) error {
	return withPool(ctx, config, func(pool *pgxpool.Pool) error {
		retentions, err := admin.Retentions(ctx, pool)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(w, "PROJECT\tKEEP")
		for _, retention := range retentions {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", retention.Project, formatKeep(retention.Keep))
		}
		return w.Flush()
	})
}

func formatKeep(keep *time.Duration) string {
	if keep == nil {
		return forever
	}
	return keep.String()
}

type removeRetentionCmd struct {
	Project entities.Project `arg:"" help:"The project."`
}

// Run removes the project's retention.
func (c removeRetentionCmd) Run(ctx context.Context, config config) error {
	return withPool(ctx, config, func(pool *pgxpool.Pool) error {
		return admin.RemoveRetention(admin.WithActor(ctx, admin.ActorCLI), pool, c.Project)
	})
}

// withPool calls do with a pool on the database at DATABASE_URL.
func withPool(ctx context.Context, config config, do func(*pgxpool.Pool) error) error {
	if config.DatabaseURL == "" {
		return errNoDatabase
	}
	pool, err := migrations.Pool(ctx, config.DatabaseURL, config.Schema, pg.InstallEpochs)
	if err != nil {
		return err
	}
	defer pool.Close()
	return do(pool)
}
