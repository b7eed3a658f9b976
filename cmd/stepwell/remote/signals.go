package remote

import (
	"context"
	"net/http"
	"net/url"
)

type signalsCmd struct {
	Send sendSignalCmd  `cmd:"" help:"Record a signal; it resumes every hook that waits for it."`
	List listSignalsCmd `cmd:"" help:"List the signals that are there."`
}

type sendSignalCmd struct {
	Name    string   `arg:"" help:"The name that hooks wait for."`
	Data    document `short:"d" placeholder:"JSON" help:"What has happened: ${json}."`
	ID      string   `name:"id" placeholder:"ID" help:"Its name with its sender: safe to repeat."`
	KeepFor string   `placeholder:"TIME" help:"For how long hooks that are opened later may look back at it, such as 1h."`
}

// Run sends the signal.
func (c sendSignalCmd) Run(ctx context.Context, s *Session) error {
	data, err := c.Data.read(s, "--data")
	if err != nil {
		return err
	}
	raw, err := s.client.do(ctx, http.MethodPost, path("signals", c.Name),
		options{}.json("data", data).text("id", c.ID).text("keepFor", c.KeepFor))
	if err != nil {
		return err
	}
	var sent signal
	if err := s.client.decode(raw, &sent); err != nil {
		return err
	}
	return s.say(raw, "%s", sent.ID)
}

type listSignalsCmd struct {
	Name string `placeholder:"NAME" help:"Those of this name."`
	paging
	ordering
}

var signalColumns = []column[signal]{
	{"ID", func(_ *Session, g signal) string { return g.ID }},
	{"NAME", func(_ *Session, g signal) string { return g.Name }},
	{"KEY", func(_ *Session, g signal) string { return g.Key }},
	{"CREATED", func(s *Session, g signal) string { return s.when(g.CreatedAt) }},
	{"KEPT UNTIL", func(s *Session, g signal) string { return s.when(g.KeepUntil) }},
	{"DATA", func(_ *Session, g signal) string {
		if g.Truncated {
			return "(left out for its size)"
		}
		return string(g.Data)
	}},
}

// Run lists the signals.
func (c listSignalsCmd) Run(ctx context.Context, s *Session) error {
	query := url.Values{}
	set(query, "name", c.Name)
	c.into(query)
	return list(ctx, s, path("signals"), query, c.paging, signalColumns)
}
