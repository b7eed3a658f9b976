package stepwell

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"time"
)

// ForkOptions say where a fork goes on, and with which code.
type ForkOptions struct {
	// At is how many events of the log the fork keeps. 0 goes on from where the run failed or was cancelled: the step that
	// failed last is executed anew.
	At int64 `json:"at,omitzero"`
	// Deployment is the ID of another deployment than that of the run, or latest.
	Deployment string `json:"deployment,omitzero"`
	// IdempotencyKey makes all forks with this key the same run. By default a key is made for each call, so that a lost
	// answer does no harm.
	IdempotencyKey string `json:"idempotencyKey"`
}

// fromFailure says that a fork goes on from where its original failed or was cancelled.
const fromFailure = "failure"

// Fork starts a run that keeps the first events of this one, and goes on from there. What is finished in them is not
// done again. [RunDetails.ForkOf] of the new run says what was open. A place from which a run cannot go on is refused
// with the code fork_refused.
func (r *Run[O]) Fork(ctx context.Context, o ForkOptions) (*Run[O], error) {
	body := struct {
		ForkOptions
		From string `json:"from,omitzero"`
	}{ForkOptions: o}
	body.IdempotencyKey = cmp.Or(o.IdempotencyKey, rand.Text())
	if o.At == 0 {
		body.From = fromFailure
	}
	var fork RunDetails
	err := r.c.do(ctx, apiRequest{method: http.MethodPost, path: r.path("rerun"), body: body}, &fork)
	if err != nil {
		return nil, err
	}
	return &Run[O]{r.c, fork.ID}, nil
}

// ForkOf says of which run a fork has kept how many events.
type ForkOf struct {
	RunID  string
	Events int64
	// Steps and Children are how many were open there, which the fork executes again. Lists of runs do not say it.
	Steps, Children int
}

// ForkAllOptions say with which code runs go on, and whether they do.
type ForkAllOptions struct {
	// Deployment is the ID of another deployment than that of each run, or latest.
	Deployment string
	// IdempotencyKey names the batch, for which each run is forked once. Only a dry run needs none.
	IdempotencyKey string
	// DryRun forks nothing, and says which runs it would be.
	DryRun bool
}

// ForkAll forks the failed runs that match the filter, from where they failed, as [Run.Fork] does; with the status
// cancelled, those that were cancelled. The filter needs a condition. After an error, the result has what was done
// before it, and a repetition with the same key does the rest.
func (c *Client) ForkAll(ctx context.Context, f RunFilter, o ForkAllOptions) (BulkResult, error) {
	return c.changeAll(ctx, "rerun", bulkBody{
		Filter: new(f.body()), From: fromFailure, Deployment: o.Deployment, IdempotencyKey: o.IdempotencyKey,
		DryRun: o.DryRun, Limit: mostInRequest,
	})
}

// CancelAllOptions say why runs are cancelled, and whether they are.
type CancelAllOptions struct {
	// Reason is stored with each run.
	Reason string
	// DryRun cancels nothing, and says which runs it would be.
	DryRun bool
}

// CancelAll cancels at once all runs that match the filter and have not ended. The filter needs a condition. After an
// error, the result has what was done before it, and a repetition does the rest.
func (c *Client) CancelAll(ctx context.Context, f RunFilter, o CancelAllOptions) (BulkResult, error) {
	body := bulkBody{filterBody: f.body(), Reason: o.Reason, DryRun: o.DryRun, Limit: mostInRequest}
	if o.DryRun {
		body.Limit = mostInDryRun
	}
	return c.changeAll(ctx, "cancel", body)
}

// BulkResult is what has become of the runs that match a filter.
type BulkResult struct {
	// Matched is how many runs match, and Done how many of them were cancelled or forked; 0 in a dry run.
	Matched, Done int
	// More is set if there may be more than the first 1,000 runs, which a dry run of [Client.CancelAll] looks at.
	More bool
	// RunIDs are the first 100 of the runs, and Refused the first 100 of those that cannot be forked.
	RunIDs  []string
	Refused []RefusedRun
	// OpenSteps and OpenChildren are how many the forks execute again. A dry run says it, too.
	OpenSteps, OpenChildren int
}

// RefusedRun is a run that cannot be forked, and why.
type RefusedRun struct{ RunID, Message string }

// filterBody is a [RunFilter] in the body of a request.
type filterBody struct {
	Workflow      string            `json:"workflow,omitzero"`
	Status        RunStatus         `json:"status,omitzero"`
	ErrorCode     string            `json:"errorCode,omitzero"`
	Key           string            `json:"key,omitzero"`
	ParentID      string            `json:"parentId,omitzero"`
	Attributes    map[string]string `json:"attributes,omitzero"`
	CreatedAfter  time.Time         `json:"createdAfter,omitzero"`
	CreatedBefore time.Time         `json:"createdBefore,omitzero"`
}

func (f RunFilter) body() filterBody {
	return filterBody{f.Workflow, f.Status, f.ErrorCode, f.Key, f.ParentID, f.Attributes, f.CreatedAfter, f.CreatedBefore}
}

// bulkBody is the body of a request that changes the runs that match a filter.
type bulkBody struct {
	filterBody

	Reason string `json:"reason,omitzero"`

	Filter         *filterBody `json:"filter,omitzero"`
	From           string      `json:"from,omitzero"`
	Deployment     string      `json:"deployment,omitzero"`
	IdempotencyKey string      `json:"idempotencyKey,omitzero"`
	Cursor         string      `json:"cursor,omitzero"`

	DryRun bool `json:"dryRun,omitzero"`
	Limit  int  `json:"limit,omitzero"`
}

const (
	// mostInRequest is how many runs a request changes: so few that its answer comes in time. A dry run that has no cursor
	// looks at as many as it can.
	mostInRequest, mostInDryRun = 100, 1000
	// mostNamed is how many runs a result names of each kind.
	mostNamed = 100
)

// changeAll repeats a request until no more runs match, or it can find no others.
func (c *Client) changeAll(ctx context.Context, path string, body bulkBody) (all BulkResult, err error) {
	for {
		var part struct {
			BulkResult

			Cancelled, Started int
			Cursor             string
		}
		err := c.do(ctx, apiRequest{method: http.MethodPost, path: apiPath("runs", path), body: body}, &part)
		if err != nil {
			return all, err
		}
		all.Matched += part.Matched
		all.Done += part.Cancelled + part.Started
		all.OpenSteps += part.OpenSteps
		all.OpenChildren += part.OpenChildren
		all.RunIDs = append(all.RunIDs, part.RunIDs[:min(len(part.RunIDs), mostNamed-len(all.RunIDs))]...)
		all.Refused = append(all.Refused, part.Refused[:min(len(part.Refused), mostNamed-len(all.Refused))]...)
		if !part.More || part.Cursor == "" && (body.DryRun || part.Matched == 0) {
			all.More = part.More
			return all, nil
		}
		body.Cursor = part.Cursor
	}
}
