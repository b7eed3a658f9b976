package remote

import (
	"context"
	"errors"
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
		filter["reason"], filter["dryRun"], filter["limit"] = c.Reason, c.DryRun, c.Limit
		return s.changeMatching(ctx, path("runs", "cancel"), filter, func(result bulkResult) error {
			if c.DryRun {
				return s.printResult(nil, "would cancel %d", result.Matched)
			}
			return s.printResult(nil, "cancelled %d", result.Cancelled)
		})
	}
}

func (c cancelRunsCmd) cancel(ctx context.Context, s *Session, id string) error {
	var r run
	raw, err := s.client.call(ctx, http.MethodPost, path("runs", id, "cancel"),
		jsonBody{"reason": c.Reason, "grace": c.Grace}.omitZero(), &r)
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
	return jsonBody{
		"workflow": f.Workflow, "status": status, "key": f.Key, "parentId": f.Parent, "attributes": f.Attr,
		"createdAfter": after, "createdBefore": before,
	}.omitZero(), nil
}

// bulkResult is the response to a request that changes all matching runs.
type bulkResult struct {
	Matched, Cancelled, Started int

	RunIDs  []string
	Refused []struct{ RunID, Message string }
	More    bool
	Cursor  string // only of copies: a run that was cancelled no longer matches
}

// changeMatching sends the request until no more runs match. With a limit or as a dry run it sends it once.
func (s *Session) changeMatching(ctx context.Context, path string, body jsonBody, report func(bulkResult) error) error {
	for {
		var result bulkResult
		raw, err := s.client.call(ctx, http.MethodPost, path, body.omitZero(), &result)
		if err != nil {
			return err
		}
		if s.json {
			err = s.printJSON(raw)
		} else {
			err = errors.Join(s.printIDs(result.RunIDs, result.Matched), report(result))
		}
		if err != nil || !result.More || result.Matched == 0 && result.Cursor == "" {
			return err
		}
		if body["dryRun"] != nil || body["limit"] != nil {
			s.note("more runs match")
			return nil
		}
		body["cursor"] = result.Cursor
	}
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
	if c.ErrorCode != "" {
		filter["errorCode"] = c.ErrorCode
	}
	switch {
	case c.ID != "" && (len(filter) > 0 || c.DryRun || c.Limit != 0):
		return usageErrorf("give either the ID of a run, or flags that select runs")
	case c.ID != "":
		body := jsonBody{"deployment": c.Deployment, "idempotencyKey": c.IdempotencyKey}.omitZero()
		return c.start(ctx, s, path("runs", c.ID, "rerun"), body)
	case len(filter) == 0:
		return usageErrorf("give the ID of a run, or flags that select runs, such as --error-code; --dry-run shows them")
	case c.Wait || c.WaitTimeout != 0:
		return usageErrorf("--wait needs the ID of a run")
	case c.IdempotencyKey == "" && !c.DryRun:
		return usageErrorf("--idempotency-key is missing: without one, a repeated command starts runs twice")
	default:
		return s.changeMatching(ctx, path("runs", "rerun"), jsonBody{
			"filter": filter, "deployment": c.Deployment, "idempotencyKey": c.IdempotencyKey,
			"dryRun": c.DryRun, "limit": c.Limit,
		}, func(result bulkResult) error {
			for _, r := range result.Refused {
				s.note("%s: %s", r.RunID, r.Message)
			}
			if c.DryRun {
				return s.printResult(nil, "would copy %d", result.Matched)
			}
			return s.printResult(nil, "copied %d", result.Started)
		})
	}
}
