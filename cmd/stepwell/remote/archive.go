package remote

import (
	"context"
	"io"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type archiveCmd struct {
	List   listArchivedCmd               `cmd:"" at:"archive/runs" help:"List archived runs, newest first."`
	Show   objectCmd[runRow, identified] `cmd:"" at:"archive/runs/*" help:"Show an archived run."`
	Events archivedEventsCmd             `cmd:"" at:"archive/runs/*/events" help:"Print the log of an archived run."`
}

type listArchivedCmd struct {
	runListFilter
	paging
}

// Run lists the runs.
func (c listArchivedCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	if err != nil {
		return err
	}
	return list[runRow](ctx, s, r.path(), c.query(r), c.paging)
}

type archivedEventsCmd struct {
	ID       string `arg:"" help:"The run's ID."`
	After    int64  `placeholder:"SEQ" help:"Print events after this position in the log."`
	Payloads bool   `field:"-" help:"Print the payloads."`
	paging
}

// Run prints the log.
func (c archivedEventsCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	if err != nil {
		return err
	}
	r.params["payloads"] = c.Payloads
	return s.entries(ctx, r.path(), r.query(), c.paging, entryPrinter(s, func(e api.Event) error {
		_, err := io.WriteString(s.Stdout, eventLine(e)+s.payloadLines(e))
		return err
	}))
}
