package whatif

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/limit"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// loadTimeout bounds the time in which the runs are read.
const loadTimeout = 20 * time.Second

// Trial asks for the effect of a limit on the runs of a window.
type Trial struct {
	Project entities.Project
	// Limit is the name of the limit. Without a Workflow, the trial is about the runs that needed it, with the keys and
	// tenants that they had.
	Limit string
	// Workflow names the workflow whose runs would need the limit, as Use says.
	Workflow string
	Use      limit.PolicyUse
	// Spec has the settings to try; nil for those of the limit.
	Spec     *limit.Spec
	From, To time.Time
}

// Answer is the outcome of a trial.
type Answer struct {
	Outcome

	Spec limit.Spec
	// WithoutKey is how many runs lacked what the key or the tenant is made of. Their starts would be refused; they are
	// not among the runs.
	WithoutKey int
	// StepsNotCounted is set if steps need the limit, too: the trial is about runs alone.
	StepsNotCounted bool
}

// Store answers trials from the runs in a database, one at a time.
type Store struct {
	pool   pg.Pool
	limits *limit.Store
	turn   chan struct{}
}

// NewStore returns the runs in the database behind pool.
func NewStore(pool pg.Pool, limits *limit.Store) *Store {
	return &Store{pool, limits, make(chan struct{}, 1)}
}

// Try answers a trial. It fails with [limit.ErrNotFound] if it needs the settings of a limit that does not exist, with
// [entities.ErrInvalid], and with [ErrTooMuch].
func (s *Store) Try(ctx context.Context, t Trial) (Answer, error) {
	if err := t.validate(); err != nil {
		return Answer{}, err
	}
	var a Answer
	if t.Spec != nil {
		a.Spec = t.Spec.WithDefaults()
	} else {
		l, err := s.limits.Limit(ctx, t.Project, t.Limit)
		if err != nil {
			return a, err
		}
		a.Spec = l.Spec
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return a, pg.Wrap(ctx.Err(), "try limit %s", t.Limit)
	}
	q := Question{Spec: a.Spec, Cost: max(1, t.Use.Cost), From: t.From, To: t.To}
	var err error
	if a.StepsNotCounted, err = s.limitsSteps(ctx, t); err != nil {
		return a, pg.Wrap(err, "try limit %s", t.Limit)
	}
	if a.WithoutKey, err = s.load(ctx, t, &q); err != nil {
		return a, pg.Wrap(err, "try limit %s", t.Limit)
	}
	a.Outcome, err = Simulate(q)
	return a, pg.Wrap(err, "try limit %s", t.Limit)
}

// limitsSteps reports whether a policy gives the limit to steps, or an open step holds or awaits a place of it.
func (s *Store) limitsSteps(ctx context.Context, t Trial) (bool, error) {
	return pg.CollectValue[bool](s.pool.Query(ctx, `
		SELECT EXISTS (SELECT FROM policies WHERE project = $1
				AND jsonb_path_exists(steps, '$.*[*] ? (@.name == $name)', jsonb_build_object('name', $2::text)))
			OR EXISTS (SELECT FROM permits WHERE project = $1 AND name = $2 AND message_id IS NOT NULL)`, t.Project, t.Limit))
}

func (t Trial) validate() error {
	if !t.From.Before(t.To) {
		return entities.Invalid("the window is empty: from %s is not before to %s", t.From.Format(time.RFC3339),
			t.To.Format(time.RFC3339))
	}
	if t.Workflow == "" {
		if t.Use != (limit.PolicyUse{Name: t.Use.Name, Cost: t.Use.Cost}) {
			return entities.Invalid("the runs that needed the limit had keys: name a workflow to try others")
		}
		return nil
	}
	return limit.Policy{Project: t.Project, Workflow: t.Workflow, Limits: []limit.PolicyUse{t.Use}}.Validate()
}

// run is a row of a run.
type run struct {
	ID           entities.RunID
	WorkflowName string
	UniqueKey    string
	Attributes   map[string]string
	Limits       []entities.LimitUse
	At           time.Time
	StartedAt    *time.Time
	CompletedAt  *time.Time
}

// load reads the runs of the window into the question. It returns how many lack what the key is made of.
func (s *Store) load(ctx context.Context, t Trial, q *Question) (withoutKey int, err error) {
	bounded, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	rows, err := pg.CollectAll[run](s.pool.Query(bounded, runsOf, t.Project, t.From, t.To, t.Workflow,
		[]entities.LimitUse{{Name: t.Limit}}, MaxRuns+1))
	switch {
	case err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded):
		return 0, fmt.Errorf("%w: reading the runs takes longer than %s: shorten the window", ErrTooMuch, loadTimeout)
	case err != nil:
		return 0, err
	case len(rows) > MaxRuns:
		return 0, fmt.Errorf("%w: more than %d runs: shorten the window, or try one workflow", ErrTooMuch, MaxRuns)
	}
	for i, r := range rows {
		use, err := t.useOf(r)
		if err != nil {
			withoutKey++
			continue
		}
		if t.Use.Cost == 0 {
			if i > 0 && limit.CostOf(use) != q.Cost {
				return 0, entities.Invalid("the runs took different numbers of places: say with cost how many each takes")
			}
			q.Cost = limit.CostOf(use)
		}
		took := time.Duration(-1)
		if r.StartedAt != nil && r.CompletedAt != nil {
			took = r.CompletedAt.Sub(*r.StartedAt)
		}
		q.Runs = append(q.Runs, Run{ID: r.ID, Key: use.Key, Tenant: use.Tenant, At: r.At, Took: took})
	}
	return withoutKey, nil
}

// useOf returns how the run needs the limit.
func (t Trial) useOf(r run) (entities.LimitUse, error) {
	if t.Workflow == "" {
		for _, u := range r.Limits {
			if u.Name == t.Limit {
				return u, nil
			}
		}
	}
	uses, err := limit.Policy{Workflow: r.WorkflowName, Limits: []limit.PolicyUse{t.Use}}.Uses(limit.Subject{
		Workflow: r.WorkflowName, UniqueKey: r.UniqueKey, Attributes: r.Attributes,
	}, nil)
	if err != nil {
		return entities.LimitUse{}, err
	}
	return uses[0], nil
}

// runsOf selects the runs of project $1 that had come by $3 and not ended by $2: those of workflow $4 or, if that is
// empty, those with limits $5; at most $6. Runs that ended before they began never needed a place.
const runsOf = `
	SELECT id, workflow_name, coalesce(unique_key, '') AS unique_key, attributes, coalesce(limits, '[]') AS limits,
		coalesce((SELECT (data->>'startAt')::timestamptz FROM events e WHERE e.run_id = r.id AND e.seq = 1), created_at)
			AS at,
		started_at, completed_at
	FROM (
		SELECT * FROM runs WHERE project = $1 AND completed_at >= $2 AND started_at IS NOT NULL
		UNION ALL
		SELECT * FROM runs WHERE project = $1 AND completed_at IS NULL
	) AS r
	WHERE created_at <= $3 AND CASE $4 WHEN '' THEN limits @> $5::jsonb ELSE workflow_name = $4 END
	LIMIT $6`
