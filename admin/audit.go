package admin

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// Actor is the originator of an administrative change: the ID of an API key, or one of the constants.
type Actor string

// The actors without an API key of their own.
const (
	// ActorEnvironment authenticated with the key in the server's environment variable STEPWELL_API_KEY.
	ActorEnvironment Actor = "STEPWELL_API_KEY"
	// ActorOpen sent no key to a server that requires none.
	ActorOpen Actor = "open"
	// ActorCLI used a command that works on the database directly.
	ActorCLI Actor = "cli"
	// ActorServer is the server itself, for example when it registers the deployments in STEPWELL_DEPLOYMENTS.
	ActorServer Actor = "server"
)

// Source is where an administrative change comes from.
type Source struct {
	Actor Actor
	// Address is the IP address of the client; empty if the change came from no request.
	Address string
}

type sourceKey struct{}

// WithSource returns a context whose administrative changes are recorded as coming from the source. It grants no
// permission.
func WithSource(ctx context.Context, s Source) context.Context {
	return context.WithValue(ctx, sourceKey{}, s)
}

// WithActor is [WithSource] without an address.
func WithActor(ctx context.Context, a Actor) context.Context {
	return WithSource(ctx, Source{Actor: a})
}

// SourceOf returns the source of the context; [ActorServer] if it has none.
func SourceOf(ctx context.Context) Source {
	if s, ok := ctx.Value(sourceKey{}).(Source); ok {
		return s
	}
	return Source{Actor: ActorServer}
}

// ActionKind is a kind of administrative change.
type ActionKind string

// The kinds of changes that the audit records.
const (
	ActionKeyCreate     ActionKind = "key.create"
	ActionKeyRevoke     ActionKind = "key.revoke"
	ActionProjectCreate ActionKind = "project.create"
	ActionProjectLimit  ActionKind = "project.limit"
	ActionProjectPause  ActionKind = "project.pause"
	ActionProjectResume ActionKind = "project.resume"
	// Those of a project's keys; see package encryption.
	ActionProjectEncrypt ActionKind = "project.encrypt"
	ActionProjectRotate  ActionKind = "project.rotate"
	ActionProjectRewrap  ActionKind = "project.rewrap"
	ActionProjectShred   ActionKind = "project.shred"
	ActionProjectRunKeys ActionKind = "project.run_keys"
	ActionRunShred       ActionKind = "run.shred"
	// ActionProjectMove is recorded in both cells.
	ActionProjectMove      ActionKind = "project.move"
	ActionDeploymentPut    ActionKind = "deployment.put"
	ActionDeploymentRemove ActionKind = "deployment.remove"
	ActionSecretPut        ActionKind = "secret.put"
	ActionSecretRemove     ActionKind = "secret.remove"
	ActionSigningKeyCreate ActionKind = "signing_key.create"
	ActionSigningKeyRemove ActionKind = "signing_key.remove"
	ActionMessageRetry     ActionKind = "message.retry"
	ActionMessageDiscard   ActionKind = "message.discard"
	// ActionMessagesRetry and ActionMessagesDiscard are for all messages that match a filter.
	ActionMessagesRetry   ActionKind = "messages.retry"
	ActionMessagesDiscard ActionKind = "messages.discard"
	ActionRetentionPut    ActionKind = "retention.put"
	ActionRetentionRemove ActionKind = "retention.remove"
	ActionFlowPut         ActionKind = "flow.put"
	ActionFlowRetire      ActionKind = "flow.retire"
	ActionCatalogPut      ActionKind = "catalog.put"
	ActionAliasPut        ActionKind = "flow_alias.put"
	ActionAliasRemove     ActionKind = "flow_alias.remove"
	ActionLimitPut        ActionKind = "limit.put"
	ActionLimitRemove     ActionKind = "limit.remove"
	ActionPolicyPut       ActionKind = "policy.put"
	ActionPolicyRemove    ActionKind = "policy.remove"
	ActionSchedulePut     ActionKind = "schedule.put"
	ActionScheduleRemove  ActionKind = "schedule.remove"
	ActionSchedulePause   ActionKind = "schedule.pause"
	ActionScheduleResume  ActionKind = "schedule.resume"
	ActionScheduleTrigger ActionKind = "schedule.trigger"
	// ActionScheduleBackfill is recorded when a backfill is ordered and when it is ended early.
	ActionScheduleBackfill ActionKind = "schedule.backfill"
	ActionCollectionFlush  ActionKind = "collection.flush"
	ActionCollectionDrop   ActionKind = "collection.drop"
	ActionTriggerPut       ActionKind = "trigger.put"
	ActionTriggerRemove    ActionKind = "trigger.remove"
	ActionTriggerPause     ActionKind = "trigger.pause"
	ActionTriggerResume    ActionKind = "trigger.resume"
	// ActionSessionBegin is recorded when a person signs in by the identity provider. Its subject is the person's key.
	ActionSessionBegin ActionKind = "session.begin"
	// ActionSessionEnd is recorded when an admin ends a session of the dashboard, and not when somebody signs out.
	ActionSessionEnd ActionKind = "session.end"
	// ActionRunCancel is recorded for cancellations by clients, and not for those that follow from another run's end.
	ActionRunCancel ActionKind = "run.cancel"
	// ActionRunRerun is recorded for each copy of a run that a client starts. Its subject is the original.
	ActionRunRerun ActionKind = "run.rerun"
	// Those of pauses; see package queue/hold.
	ActionRunPause         ActionKind = "run.pause"
	ActionRunResume        ActionKind = "run.resume"
	ActionWorkflowPause    ActionKind = "workflow.pause"
	ActionWorkflowResume   ActionKind = "workflow.resume"
	ActionDeploymentPause  ActionKind = "deployment.pause"
	ActionDeploymentResume ActionKind = "deployment.resume"
)

// Action is an entry of the audit: one administrative change.
type Action struct {
	// Seq numbers actions in the order of their insertion. A transaction may commit an action after another one has
	// committed a higher number, so a reader may see the lower number later.
	Seq     int64
	At      time.Time
	Project entities.Project
	Actor   Actor
	// Address is the IP address of the client; empty if the change came from no request.
	Address string
	Action  ActionKind
	// Subject is the ID or name of the thing that was changed.
	Subject string
	// Detail is a JSON object with further information. It never contains secrets.
	Detail json.RawMessage
}

// Change executes statements in one transaction: a change that returns its row, and its entry in the audit. It rolls
// back and fails with the error missing if no row is returned, and with the error of a check.
func Change[T any](
	ctx context.Context, pool pg.Pool, missing error, statements func(b *pgx.Batch, into **T), checks ...func() error,
) (changed T, err error) {
	err = pg.InTx(ctx, pool.Pool, func(tx pgx.Tx) error {
		var row *T
		var b pgx.Batch
		statements(&b, &row)
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		if row == nil {
			return missing
		}
		for _, check := range checks {
			if err := check(); err != nil {
				return err
			}
		}
		changed = *row
		return nil
	})
	return changed, err
}

// InsertAction queues the insertion of an action, which belongs into the transaction of the change itself. The source
// is that of the context: see [WithSource].
func InsertAction(
	ctx context.Context, b *pgx.Batch, project entities.Project, kind ActionKind, subject string, detail map[string]any,
) {
	WriteAction(pg.Batch{Batch: b}, SourceOf(ctx), Action{Project: project, Action: kind, Subject: subject}, detail)
}

// WriteAction adds the insertion of an action from the source. Of a, it takes the project, the kind and the subject.
// The SELECT has a WHERE clause because a conditional statement appends its condition.
func WriteAction(w pg.Writer, s Source, a Action, detail map[string]any) {
	if detail == nil {
		detail = map[string]any{}
	}
	w.Add(pg.Write{What: "write audit", SQL: `
		INSERT INTO audit (project, actor, address, action, subject, detail)
		SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::jsonb
		WHERE true`, Args: []any{a.Project, s.Actor, s.Address, a.Action, a.Subject, detail}})
}

// ActionFilter selects actions by one of its fields, which an index has. The zero value selects all.
type ActionFilter struct {
	Actor   Actor
	Action  ActionKind
	Subject string
}

// condition returns the SQL condition, preceded by " AND "; empty for none. It fails with [entities.ErrInvalid] if more
// than one field is set: a list by two of them could read the whole audit and find nothing.
func (f ActionFilter) condition(a *pg.Args) (sql string, err error) {
	for column, value := range map[string]string{
		"actor": string(f.Actor), "action": string(f.Action), "subject": f.Subject,
	} {
		if value == "" {
			continue
		}
		if sql != "" {
			return "", entities.Invalid("only one of actor, action and subject can select entries of the audit log")
		}
		sql = ` AND ` + column + ` = ` + a.Add(value)
	}
	return sql, nil
}

// ListActions reads a page of the actions that the filter selects in the project's audit, oldest first, and the cursor
// of the next page; empty after the last page. It fails with a [pg.CursorError] on a cursor of another list, and with
// [entities.ErrInvalid] for a filter with several fields.
func ListActions(
	ctx context.Context, q pg.Querier, project entities.Project, f ActionFilter, p pg.Page,
) (list []Action, next string, err error) {
	var from int64
	if p.Cursor != "" {
		if from, err = strconv.ParseInt(p.Cursor, 10, 64); err != nil || from < 1 {
			return nil, "", pg.BadCursor(p.Cursor)
		}
	}
	args := pg.Args{project, from, p.Limit + 1}
	condition, err := f.condition(&args)
	if err != nil {
		return nil, "", err
	}
	keyword, after := p.Order()
	rows, err := q.Query(ctx, `
		SELECT seq, at, project, actor, address, action, subject, detail FROM audit
		WHERE project = $1 AND ($2 = 0 OR seq `+after+` $2)`+condition+` ORDER BY seq `+keyword+` LIMIT $3`, args...)
	list, next, err = pg.CollectPage(rows, err, p.Limit, func(a Action) string { return strconv.FormatInt(a.Seq, 10) })
	return list, next, pg.Wrap(err, "list audit")
}
