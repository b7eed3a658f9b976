package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/archive"
	"github.com/stepwell-dev/stepwell/eventlog/runfile"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
)

type exportCmd struct {
	ID   entities.RunID `arg:"" help:"The run's ID."`
	File string         `arg:"" optional:"" help:"The file to write; default RUN.jsonl.zst."`
}

// Run writes the run to a file. On an error there is no file.
func (c exportCmd) Run(ctx context.Context, stdout io.Writer, config config) error {
	if err := entities.ValidateID("run ID", string(c.ID)); err != nil {
		return err
	}
	if c.File == "" {
		c.File = string(c.ID) + runfile.Suffix
	}
	return withMaintainer(ctx, config, func(maintainer *upkeep.Maintainer) error {
		var size upkeep.RunSize
		err := archive.WriteFile(c.File, func(w io.Writer) (err error) {
			size, err = runfile.Export(ctx, maintainer, c.ID, w)
			return err
		})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdout, "%s: %d events, %d streams\n", c.File, size.LastSeq, size.Streams)
		return err
	})
}

type importCmd struct {
	File string `arg:"" help:"An exported or archived file, s3://BUCKET/KEY, or postgres:PROJECT/RUN."`
}

// Run restores the run in a file.
func (c importCmd) Run(ctx context.Context, stdout io.Writer, config config) error {
	return withMaintainer(ctx, config, func(maintainer *upkeep.Maintainer) error {
		return withArchived(ctx, config, c.File, func(r *runfile.Reader) error {
			id, err := maintainer.Import(ctx, r.Next)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(stdout, id)
			return err
		})
	})
}

type showCmd struct {
	File string `arg:"" help:"An exported or archived file, s3://BUCKET/KEY, or postgres:PROJECT/RUN."`
}

// Run prints the events and the streams in a file, without payloads.
func (c showCmd) Run(ctx context.Context, stdout io.Writer, config config) error {
	return withArchived(ctx, config, c.File, func(r *runfile.Reader) error {
		w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
		complete := false
		for {
			record, err := r.Next()
			if errors.Is(err, io.EOF) && !complete {
				err = entities.Invalid("the file is truncated: it has no end record")
			}
			if errors.Is(err, io.EOF) {
				return w.Flush()
			}
			if err != nil {
				return errors.Join(w.Flush(), err)
			}
			complete = complete || record.End != nil
			printRecord(w, record)
		}
	})
}

func printRecord(w io.Writer, r upkeep.Record) {
	switch {
	case r.Run != nil:
		_, _ = fmt.Fprintf(w, "run %s of project %s\n", r.Run.ID, r.Run.Project)
	case r.Event != nil:
		_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d bytes\n", r.Event.Seq, r.Event.CreatedAt.Format(time.RFC3339Nano),
			r.Event.Type, r.Event.CorrelationID, len(r.Event.Payload))
	case r.Stream != nil:
		_, _ = fmt.Fprintf(w, "stream %q of %d chunks\n", r.Stream.Name, r.Stream.Chunks)
	default: // chunks and the end record
	}
}

func withArchived(ctx context.Context, config config, location string, do func(*runfile.Reader) error) error {
	read := func(file io.ReadCloser) error {
		defer func() { _ = file.Close() }()
		r, err := runfile.NewReader(file)
		if err != nil {
			return err
		}
		defer r.Close()
		return do(r)
	}
	if archive.IsInDatabase(location) {
		return withPool(ctx, config, func(pool *pgxpool.Pool) error {
			file, err := archive.NewDatabase(pool, nil).OpenAt(ctx, location)
			if err != nil {
				return err
			}
			return read(file)
		})
	}
	file, err := openArchived(ctx, config, location)
	if err != nil {
		return err
	}
	return read(file)
}

func openArchived(ctx context.Context, config config, location string) (io.ReadCloser, error) {
	if archive.IsBucket(location) {
		return config.AWS.s3().Open(ctx, location)
	}
	return os.Open(location) //nolint:gosec // the operator names it
}
