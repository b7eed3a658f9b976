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
	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/archive"
	"github.com/stepwell-dev/stepwell/eventlog/blob"
	"github.com/stepwell-dev/stepwell/eventlog/runfile"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/server"
)

type retentionCmd struct {
	Set    setRetentionCmd    `cmd:"" help:"Set how long the ended runs of a project are kept."`
	List   listRetentionCmd   `cmd:"" help:"List the projects with their own retention."`
	Remove removeRetentionCmd `cmd:"" help:"Return a project to the default of STEPWELL_RETENTION."`
}

// archive opens the archive of runs.
func (p *program) archive(pool *pgxpool.Pool) (opened server.Archive, err error) {
	maintainer := upkeep.NewMaintainer(pool, time.Now)
	database := archive.NewDatabase(pool, maintainer)
	switch location := p.config.Archive; {
	case location == archive.InDatabase:
		return database, nil
	case archive.IsBucket(location):
		opened, err = archive.NewBucket(location, p.config.AWS.s3(), maintainer)
	default:
		opened, err = archive.NewFolder(location, maintainer)
	}
	return earlier{opened, database}, err
}

// earlier is an archive that also reads what was archived in the database before.
type earlier struct {
	server.Archive
	database *archive.Database
}

// Open implements [server.Archive].
func (e earlier) Open(ctx context.Context, project entities.Project, id entities.RunID) (io.ReadCloser, error) {
	file, err := e.Archive.Open(ctx, project, id)
	if errors.Is(err, runfile.ErrNotArchived) {
		return e.database.Open(ctx, project, id)
	}
	return file, err
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
	return withKeys(ctx, config, func(pool *pgxpool.Pool, _ *encryption.Keys) error { return do(pool) })
}

// withKeys is [withPool] for what changes the keys of payloads.
func withKeys(ctx context.Context, config config, do func(*pgxpool.Pool, *encryption.Keys) error) error {
	if config.DatabaseURL == "" {
		return errNoDatabase
	}
	masters, err := config.MasterKeys()
	if err != nil {
		return err
	}
	objects, err := config.objects()
	if err != nil {
		return err
	}
	keys := encryption.New(masters, time.Now)
	pool, err := migrations.Pool(ctx, config.SessionURL(), config.Schema, pg.InstallEpochs,
		pg.InstallPayloads(blob.NewCodec(keys, objects)))
	if err != nil {
		return err
	}
	defer pool.Close()
	keys.Use(pool)
	defer keys.Close()
	return do(pool, keys)
}
