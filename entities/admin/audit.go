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

// Actor is who did something administrative: the ID of an API key, or one of the constants.
type Actor string

// Actors that have no key of their own.
const (
	// ActorEnvironment came with the key of the server's environment.
	ActorEnvironment Actor = "STEPWELL_API_KEY"
	// ActorOpen came without a key to a server that is open.
	ActorOpen Actor = "open"
	// ActorCLI used a command on the database.
	ActorCLI Actor = "cli"
	// ActorServer is the server itself, as when it registers what STEPWELL_DEPLOYMENTS says.
	ActorServer Actor = "server"
)

type actorKey struct{}

// WithActor says for whom something is done. It changes nothing but what the audit tells.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

func actorOf(ctx context.Context) Actor {
	if a, ok := ctx.Value(actorKey{}).(Actor); ok {
		return a
	}
	return ActorServer
}

// ActionKind is what was done.
type ActionKind string

// All that the audit tells of.
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

// Action is something administrative that was done, as the audit tells of it.
type Action struct {
	// Seq numbers actions. Of two that were under way at once, the one with the lower number may be seen later.
	Seq     int64
	At      time.Time
	Project entities.Project
	Actor   Actor
	Action  ActionKind
	// Subject is the ID or name of what it was done to.
	Subject string
	// Detail is a JSON object with what else is worth knowing. It never has secrets.
	Detail json.RawMessage
}

// InsertAction queues the word of an action, which belongs into the transaction that does it. Who does it is in the
// context: see [WithActor].
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

// ListActions reads a page of what was done in the project, and returns the cursor of the next page; empty when this
// is the last. It fails with [ErrInvalid] on a bad cursor.
func ListActions(ctx context.Context, q pg.Querier, project entities.Project, p pg.Page) (list []Action, next string, err error) {
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
