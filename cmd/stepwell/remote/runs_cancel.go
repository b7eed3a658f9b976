package remote

import (
	"context"
	"net/http"
)

type cancelRunsCmd struct {
	IDs    []string `arg:"" optional:"" name:"id" help:"The runs' IDs; none when flags say which."`
	Status string   `enum:",pending,running" default:"" placeholder:"STATUS" help:"Those that are pending, or running."`
	runFilter
	Limit  int    `placeholder:"N" help:"Cancel no more than this many; up to 1000."`
	DryRun bool   `help:"Cancel none; print which it would be."`
	Reason string `placeholder:"TEXT" help:"Why; it is kept with the runs."`
}

// Run cancels the runs that are named, or those that match.
func (c cancelRunsCmd) Run(ctx context.Context, s *Session) error {
	conditions, err := c.conditions(s)
	switch {
	case err != nil:
		return err
	case len(c.IDs) > 0 && (len(conditions) > 0 || c.DryRun || c.Limit != 0):
		return usage("give either the IDs of runs, or flags that say which")
	case len(c.IDs) > 0:
		return each(c.IDs, func(id string) error { return c.cancel(ctx, s, id) })
	case len(conditions) == 0:
		return usage("give the IDs of runs, or flags that say which, such as --workflow; --dry-run shows them first")
	default:
		return c.cancelAll(ctx, s, conditions)
	}
}

func (c cancelRunsCmd) cancel(ctx context.Context, s *Session, id string) error {
	raw, err := s.client.do(ctx, http.MethodPost, path("runs", id, "cancel"), options{}.text("reason", c.Reason))
	if err != nil {
		return err
	}
	return s.say(raw, "%s is cancelled", id)
}

// conditions are which runs are meant; empty if flags say nothing.
func (c cancelRunsCmd) conditions(s *Session) (options, error) {
	after, err := c.CreatedAfter.of(s.Now())
	if err != nil {
		return nil, err
	}
	before, err := c.CreatedBefore.of(s.Now())
	if err != nil {
		return nil, err
	}
	o := options{}.text("workflow", c.Workflow).text("status", c.Status).text("key", c.Key).text("parentId", c.Parent).
		text("createdAfter", after).text("createdBefore", before)
	if len(c.Attr) > 0 {
		o["attributes"] = c.Attr
	}
	return o, nil
}

// cancelAll goes on until no run matches that has not ended, unless there is a limit or nothing is cancelled.
func (c cancelRunsCmd) cancelAll(ctx context.Context, s *Session, body options) error {
	body.text("reason", c.Reason)
	if c.DryRun {
		body["dryRun"] = true
	}
	if c.Limit != 0 {
		body["limit"] = c.Limit
	}
	for {
		raw, err := s.client.do(ctx, http.MethodPost, path("runs", "cancel"), body)
		if err != nil {
			return err
		}
		var done struct {
			Matched, Cancelled int
			RunIDs             []string
			More               bool
		}
		if err := s.client.decode(raw, &done); err != nil {
			return err
		}
		if err := c.report(s, raw, done.RunIDs, done.Matched, done.Cancelled); err != nil {
			return err
		}
		if !done.More || done.Matched == 0 {
			return nil
		}
		if c.DryRun || c.Limit != 0 {
			s.note("there are more")
			return nil
		}
	}
}

// report prints what became of one request.
func (c cancelRunsCmd) report(s *Session, raw []byte, ids []string, matched, cancelled int) error {
	if s.json {
		return s.printJSON(raw)
	}
	for _, id := range ids {
		if err := s.say(nil, "%s", id); err != nil {
			return err
		}
	}
	if matched > len(ids) {
		if err := s.say(nil, "… and %d more", matched-len(ids)); err != nil {
			return err
		}
	}
	if c.DryRun {
		return s.say(nil, "would cancel %d", matched)
	}
	return s.say(nil, "cancelled %d", cancelled)
}
