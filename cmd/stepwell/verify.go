package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/stats"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	runsPerPage      = 1000
	progressInterval = 5 * time.Second
)

// runFlags select the runs of a command.
type runFlags struct {
	Run     entities.RunID   `placeholder:"ID" help:"Only this run."`
	Project entities.Project `placeholder:"ID" help:"Only the runs of this project."`
	After   entities.RunID   `placeholder:"ID" help:"Only runs with IDs after this one, to resume an interrupted command."`
}

// forEach calls do with the selected runs, ordered by ID, and logs its progress. Its error says how to resume.
func (f runFlags) forEach(
	ctx context.Context, maintainer *upkeep.Maintainer, logger *slog.Logger, do func(entities.RunID) error,
) error {
	if f.Run != "" {
		return do(f.Run)
	}
	return f.forPages(ctx, maintainer, logger, func(page []entities.RunID, done func([]entities.RunID)) error {
		for i, id := range page {
			// Retention may have deleted the run since the page was read.
			if err := do(id); err != nil && !errors.Is(err, entities.ErrRunNotFound) {
				return err
			}
			done(page[i : i+1])
		}
		return nil
	})
}

// forPages is [runFlags.forEach] for many runs at a time. Do calls done with those that it has done, in their order.
func (f runFlags) forPages(
	ctx context.Context, maintainer *upkeep.Maintainer, logger *slog.Logger,
	do func(page []entities.RunID, done func([]entities.RunID)) error,
) error {
	n, logged := 0, time.Now()
	for {
		page, err := maintainer.Runs(ctx, f.Project, f.After, runsPerPage)
		if err == nil {
			err = do(page, func(ids []entities.RunID) {
				n += len(ids)
				f.After = ids[len(ids)-1]
				if time.Since(logged) >= progressInterval {
					logged = time.Now()
					logger.InfoContext(ctx, "in progress", "runs", n, "after", f.After)
				}
			})
		}
		if err != nil && f.After != "" {
			err = fmt.Errorf("%w\nresume with --after %s", err, f.After)
		}
		if err != nil || len(page) < runsPerPage {
			logger.InfoContext(ctx, "done", "runs", n, "after", f.After)
			return err
		}
	}
}

type verifyCmd struct{ runFlags }

// Run prints the differences, one per line, and fails if there are any.
func (c verifyCmd) Run(ctx context.Context, stdout io.Writer, config config, logger *slog.Logger) error {
	return withMaintainer(ctx, config, func(maintainer *upkeep.Maintainer) error {
		differences := 0
		var printErr error
		report := func(d upkeep.Difference) {
			differences++
			_, err := fmt.Fprintln(stdout, d)
			printErr = errors.Join(printErr, err)
		}
		err := c.verify(ctx, maintainer, logger, report)
		if err = errors.Join(err, printErr); err != nil {
			return err
		}
		if differences > 0 {
			err = fmt.Errorf("found %d differences; repair them with stepwell rebuild", differences)
		}
		return err
	})
}

// verify verifies the selected runs.
func (c verifyCmd) verify(
	ctx context.Context, maintainer *upkeep.Maintainer, logger *slog.Logger, report func(upkeep.Difference),
) error {
	if c.runFlags.Run != "" {
		return maintainer.Verify(ctx, c.runFlags.Run, report)
	}
	return c.forPages(ctx, maintainer, logger, func(page []entities.RunID, done func([]entities.RunID)) error {
		return maintainer.VerifyAll(ctx, page, report, done)
	})
}

// errStatsOfRuns refuses to count the statistics of some runs.
var errStatsOfRuns = errors.New("statistics are counted for whole projects: leave out --run and --after")

type rebuildCmd struct {
	runFlags
	Stats bool `help:"Count the statistics again, in place of the rows. What is known of deleted runs is lost."`
}

// Run prints the runs it changed and the differences it could not repair, and fails if there are any of these.
func (c rebuildCmd) Run(ctx context.Context, stdout io.Writer, config config, logger *slog.Logger) error {
	if c.Stats {
		return c.rebuildStats(ctx, config, logger)
	}
	return withMaintainer(ctx, config, func(maintainer *upkeep.Maintainer) error {
		unrepaired := 0
		err := c.forEach(ctx, maintainer, logger, func(id entities.RunID) error {
			rebuilt, err := maintainer.Rebuild(ctx, id)
			if err != nil {
				return err
			}
			unrepaired += len(rebuilt.Remaining)
			return printRebuilt(stdout, id, rebuilt)
		})
		if err == nil && unrepaired > 0 {
			err = fmt.Errorf("%d differences cannot be repaired from the log", unrepaired)
		}
		return err
	})
}

// rebuildStats counts the statistics of the project, or of all projects, again, and logs its progress.
func (c rebuildCmd) rebuildStats(ctx context.Context, config config, logger *slog.Logger) error {
	if c.runFlags.Run != "" || c.After != "" {
		return errStatsOfRuns
	}
	return withPool(ctx, config, func(pool *pgxpool.Pool) error {
		projects := []entities.Project{c.Project}
		if c.Project == "" {
			list, err := admin.ListProjects(ctx, pg.NewPool(pool), time.Now())
			if err != nil {
				return err
			}
			projects = nil
			for _, p := range list {
				projects = append(projects, p.Name)
			}
		}
		logged := time.Now()
		err := stats.NewFollower(pool).Rebuild(ctx, projects, func(completeTo time.Time) {
			if time.Since(logged) >= progressInterval {
				logged = time.Now()
				logger.InfoContext(ctx, "in progress", "completeTo", completeTo)
			}
		})
		if err == nil {
			logger.InfoContext(ctx, "done", "projects", len(projects))
		}
		return err
	})
}

func printRebuilt(stdout io.Writer, id entities.RunID, rebuilt upkeep.RebuildResult) error {
	if rebuilt.Changed {
		if _, err := fmt.Fprintf(stdout, "%s rebuilt\n", id); err != nil {
			return err
		}
	}
	for _, d := range rebuilt.Remaining {
		if _, err := fmt.Fprintln(stdout, d); err != nil {
			return err
		}
	}
	return nil
}

func withMaintainer(ctx context.Context, config config, do func(*upkeep.Maintainer) error) error {
	return withPool(ctx, config, func(pool *pgxpool.Pool) error { return do(upkeep.NewMaintainer(pool, time.Now)) })
}
