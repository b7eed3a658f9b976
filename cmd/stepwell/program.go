package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/stepwell-dev/stepwell/eventlog/archive"
	"github.com/stepwell-dev/stepwell/eventlog/blob"
	"github.com/stepwell-dev/stepwell/handlers/telemetry"
	"github.com/stepwell-dev/stepwell/server"
	"github.com/stepwell-dev/stepwell/ui"
)

// program is a server with what only the command has: the dashboard, the archive, and the export of traces.
type program struct {
	*server.Server // nil before the start

	config config
	role   server.Role
	logger *slog.Logger
	// local and pullByDefault are those of [server.Options].
	local, pullByDefault bool
	traces               *telemetry.Traces // nil if disabled; tests may set it
}

// start starts the server. On an error nothing of it runs.
func (p *program) start(ctx context.Context) (err error) {
	slog.SetDefault(p.logger) // for what no logger is passed to
	if p.traces == nil {
		if p.traces, err = p.newTraces(ctx); err != nil {
			return err
		}
	}
	o := server.Options{
		Config: p.config.Config, Role: p.role, Logger: p.logger, Build: build(), Traces: p.traces,
		Local: p.local, PullByDefault: p.pullByDefault,
	}
	if p.config.UI {
		o.UI = ui.Files()
	}
	if o.Provider, err = p.config.newProvider(); err != nil {
		return err
	}
	if o.Objects, err = p.objects(ctx); err != nil {
		return err
	}
	if p.config.Archive != "" {
		o.Archive = p.archive
	}
	p.Server = &server.Server{Options: o}
	if err = p.Start(ctx); err != nil {
		p.stopTraces(context.WithoutCancel(ctx))
	}
	return err
}

// objects returns where large payloads are, which must work: but a bucket that is away for the moment stops no server.
func (p *program) objects(ctx context.Context) (blob.Objects, error) {
	objects, err := p.config.objects()
	if objects == nil || err != nil {
		return nil, err
	}
	err = archive.CheckObjects(ctx, objects)
	if errors.Is(err, archive.ErrUnreachable) {
		p.logger.WarnContext(ctx, "payloads: large ones can be neither written nor read until the bucket is back",
			"error", err)
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("STEPWELL_PAYLOADS: %w", err)
	}
	return objects, nil
}

// serve waits until ctx is done or the HTTP server fails, and stops the server.
func (p *program) serve(ctx context.Context) error {
	defer p.stopTraces(context.WithoutCancel(ctx))
	return p.Serve(ctx)
}

// stop stops the server.
func (p *program) stop(ctx context.Context) {
	p.Stop(ctx)
	p.stopTraces(ctx)
}
