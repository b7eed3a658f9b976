package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/eventlog/archive"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/queue"
)

// retentionCmd writes to the database of DATABASE_URL.
type retentionCmd struct {
	Set    setRetentionCmd    `cmd:"" help:"Say how long the runs of a project are kept after their end."`
	List   listRetentionCmd   `cmd:"" help:"List what projects have of their own."`
	Remove removeRetentionCmd `cmd:"" help:"Let STEPWELL_RETENTION hold for a project again."`
}

// retention is the server's. It fails when runs could never be archived, with what to do about that.
func (s *server) retention(ctx context.Context) (*upkeep.Retention, error) {
	store, err := s.archive(ctx)
	if err != nil {
		return nil, fmt.Errorf("STEPWELL_ARCHIVE: %w", err)
	}
	return upkeep.NewRetention(s.pool, upkeep.RetentionOptions{
		Keep: s.config.Retention, DeleteRelated: queue.DropRuns, Archive: store,
	}), nil
}

type store = func(context.Context, entities.Project, entities.RunID) (upkeep.RunSize, error)

// archive is how runs are archived; nil for not at all.
func (s *server) archive(ctx context.Context) (store, error) {
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
			// That must not keep deliveries from going on.
			s.logger.WarnContext(ctx, "ended runs stay until the archive can be reached", "error", err)
			err = nil
		}
		return bucket.Store, err
	}
}

const forever = "forever"

type setRetentionCmd struct {
	Project entities.Project `arg:"" help:"The project, such as default."`
	Keep    string           `arg:"" help:"An age such as 720h, or forever."`
}

// Run writes the age.
func (c setRetentionCmd) Run(ctx context.Context, stdout io.Writer, config config) error {
	age := admin.Retention{Project: c.Project}
	if c.Keep != forever {
		keep, err := time.ParseDuration(c.Keep)
		if err != nil {
			return fmt.Errorf("%q is neither an age such as 720h nor forever", c.Keep)
		}
		age.Keep = &keep
	}
	return withRetentions(ctx, config, func(r *admin.RetentionSettings) error {
		if err := r.Put(admin.WithActor(ctx, admin.ActorCLI), age); err != nil {
			return err
		}
		_, err := fmt.Fprintf(stdout, "ended runs of %s are kept: %s\n", c.Project, showKeep(age.Keep))
		return err
	})
}

type listRetentionCmd struct{}

// Run prints the ages.
func (listRetentionCmd) Run(ctx context.Context, stdout io.Writer, config config) error {
	return withRetentions(ctx, config, func(r *admin.RetentionSettings) error {
		ages, err := r.List(ctx)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(w, "PROJECT\tKEEP")
		for _, age := range ages {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", age.Project, showKeep(age.Keep))
		}
		return w.Flush()
	})
}

func showKeep(keep *time.Duration) string {
	if keep == nil {
		return forever
	}
	return keep.String()
}

type removeRetentionCmd struct {
	Project entities.Project `arg:"" help:"The project."`
}

// Run removes the age.
func (c removeRetentionCmd) Run(ctx context.Context, config config) error {
	return withRetentions(ctx, config, func(r *admin.RetentionSettings) error {
		return r.Remove(admin.WithActor(ctx, admin.ActorCLI), c.Project)
	})
}

func withRetentions(ctx context.Context, config config, do func(*admin.RetentionSettings) error) error {
	return withPool(ctx, config, func(pool *pgxpool.Pool) error { return do(admin.NewRetentionSettings(pool)) })
}

// withPool opens the database for a command that uses it directly.
func withPool(ctx context.Context, config config, do func(*pgxpool.Pool) error) error {
	if config.DatabaseURL == "" {
		return errNoDatabase
	}
	pool, err := migrations.Pool(ctx, config.DatabaseURL, config.Schema)
	if err != nil {
		return err
	}
	defer pool.Close()
	return do(pool)
}
