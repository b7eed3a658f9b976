package remote

import (
	"context"
	"net/http"
	"net/url"
)

type signalsCmd struct {
	Send sendSignalCmd  `cmd:"" help:"Send a signal; it resumes every hook that waits for it."`
	List listSignalsCmd `cmd:"" help:"List the stored signals."`
}

type sendSignalCmd struct {
	Name    string   `arg:"" help:"The signal's name, as hooks wait for it."`
	Data    jsonFlag `short:"d" placeholder:"JSON" help:"The signal's data: ${json}."`
	ID      string   `name:"id" placeholder:"ID" help:"The sender's ID for the signal. It makes the command idempotent."`
	KeepFor string   `placeholder:"TIME" help:"How long hooks created later still receive the signal, such as 1h."`
}

// Run sends the signal.
func (c sendSignalCmd) Run(ctx context.Context, s *Session) error {
	data, err := c.Data.read(s, "--data")
	if err != nil {
		return err
	}
	var sent signal
	body := jsonBody{}.json("data", data).text("id", c.ID).text("keepFor", c.KeepFor)
	raw, err := s.client.call(ctx, http.MethodPost, path("signals", c.Name), body, &sent)
	if err != nil {
		return err
	}
	return s.printResult(raw, "%s", sent.ID)
}

type listSignalsCmd struct {
	Name string `placeholder:"NAME" help:"List the signals with this name."`
	paging
}

var signalColumns = []column[signal]{
	{"ID", func(g signal) any { return g.ID }},
	{"NAME", func(g signal) any { return g.Name }},
	{"KEY", func(g signal) any { return g.Key }},
	{"CREATED", func(g signal) any { return g.CreatedAt }},
	{"KEPT UNTIL", func(g signal) any { return g.KeepUntil }},
	{"DATA", func(g signal) any {
		if g.Truncated {
			return "(omitted: too large)"
		}
		return string(g.Data)
	}},
}

// Run lists the signals.
func (c listSignalsCmd) Run(ctx context.Context, s *Session) error {
	query := url.Values{}
	setParam(query, "name", c.Name)
	return list(ctx, s, path("signals"), query, c.paging, signalColumns)
}
