package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/capacity/concurrency"
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/health"
)

// ErrNotRescheduled is the error when a registration was stored but its waiting messages keep their backoff.
var ErrNotRescheduled = errors.New("waiting messages keep their backoff")

// PutDeployment is [Queue.Register] of a deployment that says nothing but its URL and its workflows.
func (q *Queue) PutDeployment(
	ctx context.Context, project entities.Project, id, baseURL string, workflows ...string,
) (Deployment, error) {
	return q.Register(ctx, project, Deployment{ID: id, URL: baseURL, Workflows: workflows})
}

// Register registers a deployment, or changes it: what d does not have stays as it is. Workflows and Schemas are one
// thing in this: who gives one of them replaces both, and ends StepsOnly, which in turn removes both. It then makes
// messages due now that could not be delivered to it: those that did not reach it, invocations of runs that are
// blocked, and, if it has moved, all that failed. What its probes have found out is forgotten if the URL, the build or
// the probes are others than before. It fails with [entities.ErrInvalid] when a field is invalid, such as a URL that is
// not an absolute http or https URL, and with [ErrNotRescheduled] when only the registration succeeded.
func (q *Queue) Register(ctx context.Context, project entities.Project, d Deployment) (Deployment, error) {
	if err := d.normalize(); err != nil {
		return Deployment{}, err
	}
	return q.put(ctx, project, d, lockUnregistered)
}

// ChangeDeployment is [Queue.Register] of a deployment that is registered already, whose URL may be empty: then it
// stays as it is, too. It fails with [message.ErrDeploymentNotFound] if there is none.
func (q *Queue) ChangeDeployment(ctx context.Context, project entities.Project, d Deployment) (Deployment, error) {
	if err := entities.ValidateID("deployment ID", d.ID); err != nil {
		return Deployment{}, err
	}
	return q.put(ctx, project, d, lockRegistered)
}

// put writes a registration, and makes due what it has been waited for. prepare locks what must not change meanwhile.
func (q *Queue) put(
	ctx context.Context, project entities.Project, d Deployment, prepare prepareRegistration,
) (Deployment, error) {
	id := d.ID
	d, moved, err := q.writeDeployment(ctx, project, d, prepare)
	if err != nil {
		return Deployment{}, fmt.Errorf("put deployment %s: %w", id, err)
	}
	defer q.announceDue(nil)
	waiting := unreachedOrBlocked
	if moved {
		waiting = unreachedAll
	}
	err = errors.Join(makeDueNow(ctx, q.pool, project, d, waiting), q.bounds.Changed(ctx, project, d.ID))
	if err != nil {
		return Deployment{}, fmt.Errorf("put deployment %s: %w: %w", d.ID, ErrNotRescheduled, err)
	}
	return d, nil
}

// normalize validates a registration and brings it into the form in which it is stored.
func (d *Deployment) normalize() error {
	if err := entities.ValidateID("deployment ID", d.ID); err != nil {
		return err
	}
	if d.ID == contract.Latest {
		return entities.Invalid("deployment ID %q is reserved for the newest of a workflow: choose another", d.ID)
	}
	if err := validateURL(d.URL); err != nil {
		return err
	}
	if err := d.normalizeHealth(); err != nil {
		return err
	}
	if d.Build != "" {
		if err := entities.ValidateText("build", d.Build, maxBuild); err != nil {
			return err
		}
	}
	if err := d.validateBound(); err != nil {
		return err
	}
	return d.normalizeWorkflows()
}

// normalizeWorkflows validates what the deployment has, if that is given.
func (d *Deployment) normalizeWorkflows() error {
	if string(d.Schemas) == "null" {
		d.Schemas = nil
	}
	stepsOnly := d.StepsOnly != nil && *d.StepsOnly
	switch {
	case stepsOnly && len(d.Workflows) > 0:
		return entities.Invalid("a deployment for steps only has no workflows: leave out workflows, or stepsOnly")
	case d.Workflows == nil && d.Schemas == nil && !stepsOnly:
		return nil
	}
	d.StepsOnly = &stepsOnly
	var err error
	if d.Workflows, err = validateWorkflows(d.Workflows); err != nil {
		return err
	}
	if d.Schemas == nil {
		d.Schemas = json.RawMessage("{}")
	}
	return validateSchemas(d.Schemas, d.Workflows)
}

// normalizeHealth validates how the deployment is probed, and fills in the defaults.
func (d *Deployment) normalizeHealth() error {
	if d.Health == nil || d.Health.Path == "" {
		return nil
	}
	if d.URL == PulledURL || IsEmbedded(d.URL) {
		return entities.Invalid("an app that asks for its deliveries, or is embedded, has no URL to probe: remove health")
	}
	settings := d.Health.WithDefaults()
	d.Health = &settings
	return settings.Validate()
}

// writeProbes queues or drops the work that probes a deployment, as part of its registration. An unhealthy deployment,
// and one whose health is not known, is probed at once. A healthy one is probed as before: apps that register often
// must not come to failAfter sooner.
func (q *Queue) writeProbes(ctx context.Context, tx pgx.Tx, p entities.Project, d Deployment) (func(error), error) {
	subject := message.ProbeSubject(p, d.ID)
	if d.Health == nil {
		var b pgx.Batch
		q.DropWorkOf(&b, message.WorkProbe, subject)
		return nil, pg.SendQueued(ctx, tx, &b)
	}
	work := message.Message{Project: p, DeploymentID: d.ID, Topic: d.ID, Work: message.WorkProbe, Subject: subject}
	if work.Urgent = d.ProbedAt == nil || d.UnhealthySince != nil; !work.Urgent {
		work.Delay = time.Duration(d.Health.Every)
	}
	_, ended, err := q.Enqueue(ctx, tx, &pgx.Batch{}, []message.Message{work})
	return ended, err
}

// registered is a deployment that was registered, and what the registration has changed.
type registered struct {
	Deployment
	Moved, Rebuilt, Reprobed, Rebounded, Relisted bool
}

// resetHealth forgets what probes have found out if the registration is that of another program, of another address,
// or has other probes. Apps repeat their registration at every start, which says nothing about their health.
func (r *registered) resetHealth(ctx context.Context, tx pgx.Tx, p entities.Project) error {
	if !r.Moved && !r.Rebuilt && !r.Reprobed {
		return nil
	}
	r.State = health.State{}
	var b pgx.Batch
	health.Save(&b, p, r.ID, r.State)
	return pg.SendQueued(ctx, tx, &b)
}

// audit writes an audit entry if something has changed: apps repeat their registration at every start.
func (r *registered) audit(ctx context.Context, tx pgx.Tx, p entities.Project) error {
	if !r.Moved && !r.Rebuilt && !r.Reprobed && !r.Rebounded && !r.Relisted {
		return nil
	}
	detail := map[string]any{"url": r.URL, "workflows": r.Workflows}
	if *r.StepsOnly {
		detail["stepsOnly"] = true
	}
	if r.Build != "" {
		detail["build"] = r.Build
	}
	if r.Rebounded {
		detail["maxConcurrent"] = r.MaxConcurrent
	}
	if r.Reprobed {
		detail["health"] = r.Health
	}
	return audit(ctx, tx, p, admin.ActionDeploymentPut, r.ID, detail)
}

// prepareRegistration takes the locks that a registration needs, and completes it with what they protect.
type prepareRegistration func(ctx context.Context, tx pgx.Tx, project entities.Project, d *Deployment) error

// lockUnregistered is for a deployment that need not be there.
func lockUnregistered(ctx context.Context, tx pgx.Tx, project entities.Project, d *Deployment) error {
	return lockFlows(ctx, tx, project, d.ID)
}

// lockRegistered locks the row of a deployment that must be there, and completes the registration with its URL.
func lockRegistered(ctx context.Context, tx pgx.Tx, project entities.Project, d *Deployment) error {
	var current string
	err := tx.QueryRow(ctx, `SELECT url FROM deployments WHERE project = $1 AND id = $2 FOR UPDATE`,
		project, d.ID).Scan(&current)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return message.ErrDeploymentNotFound
	case err != nil:
		return err
	case strings.HasPrefix(current, contract.FlowScheme):
		return errIsFlow(d.ID)
	}
	if d.URL == "" {
		d.URL = current
	}
	return d.normalize()
}

// writeDeployment writes a registration and, if it changed, its audit entry; moved reports whether the URL changed.
func (q *Queue) writeDeployment(
	ctx context.Context, project entities.Project, d Deployment, prepare prepareRegistration,
) (written Deployment, moved bool, err error) {
	err = pg.InTxThen(ctx, q.pool, func(tx pgx.Tx) (ended func(error), err error) {
		if err := prepare(ctx, tx, project, &d); err != nil {
			return nil, err
		}
		rows, err := tx.Query(ctx, `
			WITH old AS (
				SELECT url, workflows, build, schemas, max_concurrent, health, steps_only
				FROM deployments WHERE project = $1 AND id = $2)
			INSERT INTO deployments AS d (project, id, url, workflows, build, schemas, max_concurrent, health, steps_only)
			SELECT $1, $2, $3, coalesce($4::text[], '{}'), $5, coalesce($6::jsonb, '{}'), nullif($7::integer, 0),
				CASE WHEN $8::jsonb ->> 'path' <> '' THEN $8::jsonb END, coalesce($9, false)
			WHERE NOT EXISTS (SELECT FROM flow_aliases WHERE project = $1 AND id = $2)
			ON CONFLICT (project, id) DO UPDATE SET url = excluded.url, updated_at = now(),
				workflows = coalesce($4, d.workflows), schemas = coalesce($6, d.schemas), steps_only = coalesce($9, d.steps_only),
				build = coalesce(nullif($5, ''), d.build),
				max_concurrent = CASE
					WHEN excluded.url = '`+PulledURL+`' THEN NULL
					WHEN $7::integer IS NULL THEN d.max_concurrent ELSE excluded.max_concurrent END,
				unreachable_since = CASE WHEN d.url = excluded.url THEN d.unreachable_since END,
				health = CASE WHEN $8::jsonb IS NULL AND $3 <> '`+PulledURL+`' THEN d.health ELSE excluded.health END
			WHERE d.url NOT LIKE '`+contract.FlowScheme+`%'
			RETURNING `+deploymentColumns+`, nullif(schemas, '{}') AS schemas, `+state+`,
				url IS DISTINCT FROM (SELECT url FROM old) AS moved,
				build IS DISTINCT FROM (SELECT build FROM old) AS rebuilt,
				health IS DISTINCT FROM (SELECT health FROM old) AS reprobed,
				max_concurrent IS DISTINCT FROM (SELECT max_concurrent FROM old) AS rebounded,
				(workflows, schemas, steps_only)
					IS DISTINCT FROM (SELECT (workflows, schemas, steps_only) FROM old) AS relisted`,
			project, d.ID, d.URL, d.Workflows, d.Build, d.Schemas, d.MaxConcurrent, d.Health, d.StepsOnly)
		if err != nil {
			return nil, err
		}
		row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByNameLax[registered])
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, errIsFlow(d.ID)
		}
		if err == nil {
			err = row.resetHealth(ctx, tx, project)
		}
		if err != nil {
			return nil, err
		}
		written, moved = row.Deployment, row.Moved
		if ended, err = q.writeProbes(ctx, tx, project, written); err != nil {
			return ended, err
		}
		return ended, row.audit(ctx, tx, project)
	})
	return written, moved, err
}

// lockFlows keeps the project's flows from taking the ID of a deployment in the meantime.
func lockFlows(ctx context.Context, tx pgx.Tx, project entities.Project, id string) error {
	if !strings.Contains(id, "@") {
		return nil // it can be no version and no alias
	}
	_, err := tx.Exec(ctx, contract.LockFlows, project)
	return err
}

// audit writes an audit entry in the transaction of the audited action, so that neither is stored without the other.
func audit(
	ctx context.Context, tx pgx.Tx, project entities.Project, kind admin.ActionKind, subject string,
	detail map[string]any,
) error {
	var b pgx.Batch
	admin.InsertAction(ctx, &b, project, kind, subject, detail)
	return tx.SendBatch(ctx, &b).Close()
}

// errIsFlow refuses to change a deployment that is a version of a flow, and one with the ID of an alias.
func errIsFlow(id string) error {
	return entities.Invalid("deployment %s is a version or an alias of a flow: put the flow, or choose another ID", id)
}

func (d *Deployment) validateBound() error {
	switch n := d.MaxConcurrent; {
	case n == nil || *n == 0:
		return nil
	case d.URL == PulledURL || IsEmbedded(d.URL):
		return entities.Invalid("an app that asks for its deliveries, or is embedded, takes as many as it has slots for: " +
			"bound its slots instead of setting maxConcurrent")
	case *n < 0 || *n > concurrency.MaxCalls:
		return entities.Invalid("maxConcurrent %d is not between 0 and %d", *n, concurrency.MaxCalls)
	default:
		return nil
	}
}

func validateURL(s string) error {
	if s == PulledURL {
		return nil
	}
	if app, ok := strings.CutPrefix(s, EmbeddedScheme); ok {
		return entities.ValidateID("app in the url", app)
	}
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return entities.Invalid("url %q is not an absolute http or https URL", s)
	}
	if strings.ContainsAny(s, "?#") || u.User != nil {
		return entities.Invalid("the url has a query, a fragment or credentials; want a base URL") // logs would show them
	}
	return nil
}

// validateWorkflows checks the names and returns them sorted, without duplicates.
func validateWorkflows(names []string) ([]string, error) {
	if n := len(names); n > maxWorkflows {
		return nil, entities.Invalid("a deployment has %d workflows; the limit is %d", n, maxWorkflows)
	}
	for _, name := range names {
		if err := entities.ValidateWorkflowName("workflow", name); err != nil {
			return nil, err
		}
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(names)))
	if sorted == nil {
		sorted = []string{} // an empty array, not NULL
	}
	return sorted, nil
}

// validateSchemas checks that the schemas are an object whose fields are workflows, with input and output as objects.
func validateSchemas(data json.RawMessage, workflows []string) error {
	if len(data) > maxSchemas {
		return entities.Invalid("the schemas have %d bytes; the limit is %d", len(data), maxSchemas)
	}
	var schemas map[string]struct{ Input, Output map[string]any }
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&schemas); err != nil {
		return entities.Invalid(`the schemas are not {"WORKFLOW": {"input": {…}, "output": {…}}}: %v`, err)
	}
	if bytes.Contains(data, []byte(`\u0000`)) {
		return entities.Invalid(`the schemas contain \u0000, which Postgres does not store`)
	}
	for name := range schemas {
		if !slices.Contains(workflows, name) {
			return entities.Invalid("there are schemas of %q, which is not among the workflows", name)
		}
	}
	return nil
}
