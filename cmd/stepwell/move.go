package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/admin/move"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/pg"
)

// projectsCmd are the commands about projects that work on databases.
type projectsCmd struct {
	Move moveProjectCmd `cmd:"" group:"database" help:"Move a project to another cell."`
}

type moveProjectCmd struct {
	Project      entities.Project `arg:"" help:"The project."`
	To           entities.Cell    `required:"" placeholder:"CELL" help:"The cell to which it goes."`
	ToDatabase   string           `required:"" placeholder:"URL" env:"TO_DATABASE_URL" help:"Its database, past poolers."`
	SameSettings bool             `help:"Both cells have the same payloads, archive and master keys."`
	Abort        bool             `help:"Give up a move that has begun, if the other cell does not have the project yet."`
}

// Run moves the project from the cell of DATABASE_URL, or goes on with that.
func (c moveProjectCmd) Run(ctx context.Context, stdout io.Writer, config config, logger *slog.Logger) error {
	ctx = admin.WithActor(ctx, admin.ActorCLI)
	return withPool(ctx, config, func(from *pgxpool.Pool) error {
		to, err := migrations.Pool(ctx, c.ToDatabase, config.Schema, pg.InstallEpochs)
		if err != nil {
			return err
		}
		defer to.Close()
		// Servers use a key for so long before they read it again, and check those of requests under way so often.
		mover := &move.Mover{
			From: from, To: to, Lingering: access.CacheTime + auth.DefaultRecheck, SameSettings: c.SameSettings, Logger: logger,
		}
		if c.Abort {
			if err := mover.Abort(ctx, c.Project, c.To); err != nil {
				return err
			}
			_, err = fmt.Fprintf(stdout, "project %s stays\n", c.Project)
			return err
		}
		if err := mover.Move(ctx, c.Project, c.To); err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdout, "project %s is in cell %s: make the proxy's map again\n", c.Project, c.To)
		return err
	})
}
