package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
)

// runsPage is how many run IDs a walk over all runs reads at once, and progressEvery how often it says
// where it is.
const (
	runsPage      = 1000
	progressEvery = 5 * time.Second
)

// walk is which runs a command is about.
type walk struct {
	Run     entities.RunID   `placeholder:"ID" help:"This run only."`
	Project entities.Project `placeholder:"ID" help:"The runs of this project only."`
	After   entities.RunID   `placeholder:"ID" help:"The runs with IDs after this one: where another walk stopped."`
}

// each calls do with the runs, in the order of their IDs. It logs now and then, and when it is interrupted,
// from where to go on.
func (w walk) each(
	ctx context.Context, m *upkeep.Maintainer, logger *slog.Logger, do func(entities.RunID) error,
) error {
	if w.Run != "" {
		return do(w.Run)
	}
	n, said := 0, time.Now()
	for {
		page, err := m.Runs(ctx, w.Project, w.After, runsPage)
		for _, id := range page {
			if time.Since(said) >= progressEvery {
				said = time.Now()
				logger.InfoContext(ctx, "under way", "runs", n, "after", w.After)
			}
			// A run may have left since the page was read.
			if err = do(id); err != nil && !errors.Is(err, entities.ErrRunNotFound) {
				break
			}
			err, w.After = nil, id
			n++
		}
		if err != nil && w.After != "" {
			err = fmt.Errorf("%w\nto go on from here: --after %s", err, w.After)
		}
		if err != nil || len(page) < runsPage {
			logger.InfoContext(ctx, "done", "runs", n, "after", w.After)
			return err
		}
	}
}

type verifyCmd struct{ walk }

// Run prints every difference on a line, and fails when there is one.
func (c verifyCmd) Run(ctx context.Context, stdout io.Writer, config config, logger *slog.Logger) error {
	return withMaintainer(ctx, config, func(m *upkeep.Maintainer) error {
		differences := 0
		var printed error
		err := c.each(ctx, m, logger, func(id entities.RunID) error {
			err := m.Verify(ctx, id, func(d upkeep.Difference) {
				differences++
				_, err := fmt.Fprintln(stdout, d)
				printed = errors.Join(printed, err)
			})
			return errors.Join(err, printed)
		})
		if err == nil && differences > 0 {
			err = fmt.Errorf("found %d differences; stepwell rebuild restores rows from the log", differences)
		}
		return err
	})
}

type rebuildCmd struct{ walk }

// Run prints the runs it changed and what it could not mend, and fails when there is such.
func (c rebuildCmd) Run(ctx context.Context, stdout io.Writer, config config, logger *slog.Logger) error {
	return withMaintainer(ctx, config, func(m *upkeep.Maintainer) error {
		left := 0
		err := c.each(ctx, m, logger, func(id entities.RunID) error {
			done, err := m.Rebuild(ctx, id)
			if err != nil {
				return err
			}
			left += len(done.Remaining)
			return printRebuilt(stdout, id, done)
		})
		if err == nil && left > 0 {
			err = fmt.Errorf("%d differences are left that the log cannot mend", left)
		}
		return err
	})
}

func printRebuilt(stdout io.Writer, id entities.RunID, done upkeep.RebuildResult) error {
	if done.Changed {
		if _, err := fmt.Fprintf(stdout, "%s rebuilt\n", id); err != nil {
			return err
		}
	}
	for _, d := range done.Remaining {
		if _, err := fmt.Fprintln(stdout, d); err != nil {
			return err
		}
	}
	return nil
}

func withMaintainer(ctx context.Context, config config, do func(*upkeep.Maintainer) error) error {
	return withPool(ctx, config, func(pool *pgxpool.Pool) error { return do(upkeep.NewMaintainer(pool, time.Now)) })
}
