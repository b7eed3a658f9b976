package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
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

type actorKey struct{}

// WithActor returns a context whose administrative changes are recorded under the actor. It grants no permission.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// actorOf returns the actor of the context; [ActorServer] if it has none.
func actorOf(ctx context.Context) Actor {
	if a, ok := ctx.Value(actorKey{}).(Actor); ok {
		return a
	}
	return ActorServer
}

// ActionKind is a kind of administrative change.
type ActionKind string

// The kinds of changes that the audit records.
const (
	ActionKeyCreate        ActionKind = "key.create"
	ActionKeyRevoke        ActionKind = "key.revoke"
	ActionProjectCreate    ActionKind = "project.create"
	ActionDeploymentPut    ActionKind = "deployment.put"
	ActionDeploymentRemove ActionKind = "deployment.remove"
	ActionSecretPut        ActionKind = "secret.put"
	ActionSecretRemove     ActionKind = "secret.remove"
	ActionSigningKeyCreate ActionKind = "signing_key.create"
	ActionSigningKeyRemove ActionKind = "signing_key.remove"
	ActionMessageRetry     ActionKind = "message.retry"
	ActionMessageDiscard   ActionKind = "message.discard"
	ActionRetentionPut     ActionKind = "retention.put"
	ActionRetentionRemove  ActionKind = "retention.remove"
)

// Action is an entry of the audit: one administrative change.
type Action struct {
	// Seq numbers actions in the order of their insertion. A transaction may commit an action after another one has
	// committed a higher number, so a reader may see the lower number later.
	Seq     int64
	At      time.Time
	Project entities.Project
	Actor   Actor
	Action  ActionKind
	// Subject is the ID or name of the thing that was changed.
	Subject string
	// Detail is a JSON object with further information. It never contains secrets.
	Detail json.RawMessage
}

// InsertAction queues the insertion of an action, which belongs into the transaction of the change itself. The actor is
// that of the context: see [WithActor].
func InsertAction(
	ctx context.Context, b *pgx.Batch, project entities.Project, kind ActionKind, subject string, detail map[string]any,
) {
	if detail == nil {
		detail = map[string]any{}
	}
	pg.QueueOne(b, "write audit", `
		INSERT INTO audit (project, actor, action, subject, detail) VALUES ($1, $2, $3, $4, $5)`,
		project, actorOf(ctx), kind, subject, detail)
}

// ListActions reads a page of the project's audit, oldest first, and the cursor of the next page; empty after the last
// page. It fails with a [pg.CursorError] on a cursor of another list.
func ListActions(
	ctx context.Context, q pg.Querier, project entities.Project, p pg.Page,
) (list []Action, next string, err error) {
	var from int64
	if p.Cursor != "" {
		if from, err = strconv.ParseInt(p.Cursor, 10, 64); err != nil || from < 1 {
			return nil, "", pg.BadCursor(p.Cursor)
		}
	}
	keyword, after := p.Order()
	rows, err := q.Query(ctx, `
		SELECT seq, at, project, actor, action, subject, detail FROM audit
		WHERE project = $1 AND ($2 = 0 OR seq `+after+` $2) ORDER BY seq `+keyword+` LIMIT $3`, project, from, p.Limit+1)
	list, more, err := pg.CollectPage[Action](rows, err, p.Limit)
	if err != nil {
		return nil, "", fmt.Errorf("list audit: %w", err)
	}
	if more {
		next = strconv.FormatInt(list[len(list)-1].Seq, 10)
	}
	return list, next, nil
}
