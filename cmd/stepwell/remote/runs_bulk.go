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
	filter, err := c.conditions(s, c.Status)
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

// conditions returns the conditions of the flags as JSON, which may be empty.
func (f runFilter) conditions(s *Session, status string) (jsonBody, error) {
	after, before, err := interval(s, f.CreatedAfter, f.CreatedBefore)
	if err != nil {
		return nil, err
	}
	filter := jsonBody{}.text("workflow", f.Workflow).text("status", status).text("key", f.Key).
		text("parentId", f.Parent).text("createdAfter", after).text("createdBefore", before)
	if len(f.Attr) > 0 {
		filter["attributes"] = f.Attr
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
	if err := s.printIDs(result.RunIDs, result.Matched); err != nil {
		return err
	}
	if c.DryRun {
		return s.printResult(nil, "would cancel %d", result.Matched)
	}
	return s.printResult(nil, "cancelled %d", result.Cancelled)
}

// printIDs prints the first IDs of runs, and how many more there are.
func (s *Session) printIDs(ids []string, all int) error {
	for _, id := range ids {
		if err := s.printResult(nil, "%s", id); err != nil {
			return err
		}
	}
	if more := all - len(ids); more > 0 {
		return s.printResult(nil, "… and %d more", more)
	}
	return nil
}

type rerunCmd struct {
	ID     string `arg:"" optional:"" help:"The ID of the run to copy, unless flags select the runs."`
	Status string `enum:",completed,failed,cancelled" default:"" placeholder:"STATUS" help:"${ended}"`
	runFilter
	ErrorCode      string `placeholder:"CODE" help:"Select failed runs whose error has this code."`
	Deployment     string `short:"d" placeholder:"ID" help:"Another deployment, or latest."`
	IdempotencyKey string `placeholder:"KEY" help:"Makes the command idempotent: repeats start no second copy of a run."`
	Limit          int    `placeholder:"N" help:"Copy at most this many runs; up to 1000."`
	DryRun         bool   `help:"Only print the runs that would be copied."`
	waitFlags
}

// Run starts a copy of the run with the ID, or of those that the flags select.
func (c rerunCmd) Run(ctx context.Context, s *Session) error {
	filter, err := c.conditions(s, c.Status)
	if err != nil {
		return err
	}
	filter.text("errorCode", c.ErrorCode)
	switch {
	case c.ID != "" && (len(filter) > 0 || c.DryRun || c.Limit != 0):
		return usageErrorf("give either the ID of a run, or flags that select runs")
	case c.ID != "":
		body := jsonBody{}.text("deployment", c.Deployment).text("idempotencyKey", c.IdempotencyKey)
		return c.start(ctx, s, path("runs", c.ID, "rerun"), body)
	case len(filter) == 0:
		return usageErrorf("give the ID of a run, or flags that select runs, such as --error-code; --dry-run shows them")
	case c.Wait || c.WaitTimeout != 0:
		return usageErrorf("--wait needs the ID of a run")
	case c.IdempotencyKey == "" && !c.DryRun:
		return usageErrorf("--idempotency-key is missing: without one, a repeated command starts runs twice")
	default:
		return c.rerunMatching(ctx, s, filter)
	}
}

// reruns is the response to a request that copies all matching runs.
type reruns struct {
	Matched, Started int
	RunIDs           []string
	Refused          []struct{ RunID, Message string }
	More             bool
	Cursor           string
}

// rerunMatching repeats the request until all matching runs are copied. With --limit or --dry-run it sends one request.
func (c rerunCmd) rerunMatching(ctx context.Context, s *Session, filter jsonBody) error {
	body := jsonBody{"filter": filter}.text("deployment", c.Deployment).text("idempotencyKey", c.IdempotencyKey)
	if c.DryRun {
		body["dryRun"] = true
	}
	if c.Limit != 0 {
		body["limit"] = c.Limit
	}
	for {
		var result reruns
		raw, err := s.client.call(ctx, http.MethodPost, path("runs", "rerun"), body, &result)
		if err != nil {
			return err
		}
		if err := c.report(s, raw, result); err != nil {
			return err
		}
		if !result.More {
			return nil
		}
		if c.DryRun || c.Limit != 0 {
			s.note("more runs match")
			return nil
		}
		body.text("cursor", result.Cursor)
	}
}

// report prints the result of one request.
func (c rerunCmd) report(s *Session, raw []byte, result reruns) error {
	if s.json {
		return s.printJSON(raw)
	}
	if err := s.printIDs(result.RunIDs, result.Matched); err != nil {
		return err
	}
	for _, r := range result.Refused {
		s.note("%s: %s", r.RunID, r.Message)
	}
	if c.DryRun {
		return s.printResult(nil, "would copy %d", result.Matched)
	}
	return s.printResult(nil, "copied %d", result.Started)
}
