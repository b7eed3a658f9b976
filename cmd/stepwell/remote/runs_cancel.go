package remote

import (
	"context"
	"net/http"
)

type cancelRunsCmd struct {
	IDs    []string `arg:"" optional:"" name:"id" help:"The runs' IDs, unless flags select the runs."`
	Status string   `enum:",pending,running" default:"" placeholder:"STATUS" help:"Select pending or running runs."`
	runFilter
	Limit  int    `placeholder:"N" help:"Cancel at most this many runs; up to 1000."`
	DryRun bool   `help:"Only print the runs that would be cancelled."`
	Reason string `placeholder:"TEXT" help:"The reason, stored with the runs."`
	Grace  string `placeholder:"TIME" help:"Let the runs end by themselves within this time, such as 1m."`
}

// Run cancels the runs with the IDs, or those that the flags select.
func (c cancelRunsCmd) Run(ctx context.Context, s *Session) error {
	filter, err := c.filter(s)
	switch {
	case err != nil:
		return err
	case len(c.IDs) > 0 && (len(filter) > 0 || c.DryRun || c.Limit != 0):
		return usageErrorf("give either IDs of runs, or flags that select runs")
	case len(c.IDs) == 0 && c.Grace != "":
		return usageErrorf("--grace needs IDs of runs")
	case len(c.IDs) > 0:
		return forEach(c.IDs, func(id string) error { return c.cancel(ctx, s, id) })
	case len(filter) == 0:
		return usageErrorf("give IDs of runs, or flags that select runs, such as --workflow; preview them with --dry-run")
	default:
		return c.cancelMatching(ctx, s, filter)
	}
}

func (c cancelRunsCmd) cancel(ctx context.Context, s *Session, id string) error {
	var r run
	raw, err := s.client.call(ctx, http.MethodPost, path("runs", id, "cancel"),
		jsonBody{}.text("reason", c.Reason).text("grace", c.Grace), &r)
	if err != nil {
		return err
	}
	if r.CompletedAt.IsZero() {
		return s.printResult(raw, "asked %s to cancel; it is ended at %s", id, timestamp(r.ForcedAt))
	}
	return s.printResult(raw, "cancelled %s", id)
}

// filter returns the conditions of the flags, which may be empty.
func (c cancelRunsCmd) filter(s *Session) (jsonBody, error) {
	after, before, err := interval(s, c.CreatedAfter, c.CreatedBefore)
	if err != nil {
		return nil, err
	}
	filter := jsonBody{}.text("workflow", c.Workflow).text("status", c.Status).text("key", c.Key).
		text("parentId", c.Parent).text("createdAfter", after).text("createdBefore", before)
	if len(c.Attr) > 0 {
		filter["attributes"] = c.Attr
	}
	return filter, nil
}

// cancellation is the response to a request that cancels all matching runs.
type cancellation struct {
	Matched, Cancelled int
	RunIDs             []string
	More               bool
}

// cancelMatching repeats the request until no active run matches. With --limit or --dry-run it sends one request.
func (c cancelRunsCmd) cancelMatching(ctx context.Context, s *Session, body jsonBody) error {
	body.text("reason", c.Reason)
	if c.DryRun {
		body["dryRun"] = true
	}
	if c.Limit != 0 {
		body["limit"] = c.Limit
	}
	for {
		var result cancellation
		raw, err := s.client.call(ctx, http.MethodPost, path("runs", "cancel"), body, &result)
		if err != nil {
			return err
		}
		if err := c.report(s, raw, result); err != nil {
			return err
		}
		if !result.More || result.Matched == 0 {
			return nil
		}
		if c.DryRun || c.Limit != 0 {
			s.note("more runs match")
			return nil
		}
	}
}

// report prints the result of one request.
func (c cancelRunsCmd) report(s *Session, raw []byte, result cancellation) error {
	if s.json {
		return s.printJSON(raw)
	}
	for _, id := range result.RunIDs {
		if err := s.printResult(nil, "%s", id); err != nil {
			return err
		}
	}
	if more := result.Matched - len(result.RunIDs); more > 0 {
		if err := s.printResult(nil, "… and %d more", more); err != nil {
			return err
		}
	}
	if c.DryRun {
		return s.printResult(nil, "would cancel %d", result.Matched)
	}
	return s.printResult(nil, "cancelled %d", result.Cancelled)
}
