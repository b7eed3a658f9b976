package collection

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/pg"
)

const columns = `run_id, project, workflow, kind, key, quiet, max_wait, keep, size, max_bytes, deployment, data,
	timeout, input, count, bytes, first_at, last_at, due_at, refusal`

// ByID reads the collection of a run. It fails with [ErrNotFound].
func ByID(ctx context.Context, q pg.Querier, project entities.Project, id entities.RunID) (Collection, error) {
	rows, err := q.Query(ctx, `SELECT `+columns+` FROM collections WHERE run_id = $1 AND project = $2`, id, project)
	c, err := pg.CollectOne[Collection](rows, err, ErrNotFound)
	return c, pg.Wrap(err, "read collection %s", id)
}

// List reads a page of the project's collections, ordered by their opening, and the cursor of the next page; empty
// after the last.
func List(
	ctx context.Context, q pg.Querier, project entities.Project, p pg.Page,
) (list []Collection, next string, err error) {
	from := pg.Keyed{Table: "collections", Key: "run_id", Columns: columns}
	return pg.ListKeyed(ctx, q, from, project, p, func(c Collection) string { return string(c.RunID) })
}

// Repeated is what is remembered of a start with an idempotency key.
type Repeated struct {
	RunID  entities.RunID
	Digest string
}

// ByIdempotencyKey reads the start that was collected with the key; nil if there is none.
func ByIdempotencyKey(ctx context.Context, q pg.Querier, project entities.Project, key string) (*Repeated, error) {
	if key == "" {
		return nil, nil
	}
	list, err := pg.CollectAll[Repeated](q.Query(ctx, `
		SELECT run_id, digest FROM collected WHERE project = $1 AND idempotency_key = $2 AND idempotency_key <> ''`,
		project, key))
	if err != nil || len(list) == 0 {
		return nil, pg.Wrap(err, "find a collected start")
	}
	return &list[0], nil
}

// LockByKey queues a query that locks the collection that takes starts with the rule's key; *into stays nil if there is
// none.
func LockByKey(b *pgx.Batch, project entities.Project, workflow string, r Rule, into **Collection) {
	pg.LoadInto(b, into, `
		SELECT `+columns+` FROM collections WHERE project = $1 AND workflow = $2 AND kind = $3 AND key = $4 FOR UPDATE`,
		project, workflow, r.Kind, r.Key)
}

// Lock queues a query that locks the collection of a run; *into stays nil if there is none.
func Lock(b *pgx.Batch, project entities.Project, id entities.RunID, into **Collection) {
	pg.LoadInto(b, into, `SELECT `+columns+` FROM collections WHERE run_id = $1 AND project = $2 FOR UPDATE`, id, project)
}

// item is the input of a start that was collected.
type item struct {
	RunID entities.RunID
	Seq   int64
	Input []byte
}

// Payloads implements [atrest.Row].
func (i *item) Payloads(o *atrest.Opener) {
	o.Bytes(atrest.Place{Kind: atrest.Start, Owner: string(i.RunID), Seq: i.Seq}, &i.Input)
}

// LoadItems queues a query that appends the items of a locked collection in the order of their arrival.
func LoadItems(b *pgx.Batch, id entities.RunID, into *[][]byte) {
	pg.LoadEach(b, func(row item) { *into = append(*into, row.Input) },
		`SELECT run_id, seq, input FROM collected WHERE run_id = $1 ORDER BY seq`, id)
}

// opened is a collection that a statement has written.
type opened struct{ RunID entities.RunID }

// Insert queues the insertion of a collection with its first start. The check that it returns fails with [ErrTooMany],
// and with [ErrChanged] if somebody else has just opened one with the same key.
func Insert(b *pgx.Batch, c Collection, first Start) (check func() error) {
	var found *struct{ Count int64 }
	var inserted *opened
	pg.LoadInto(b, &found, `SELECT count(*) AS count FROM collections WHERE project = $1`, c.Project)
	pg.LoadInto(b, &inserted, `
		INSERT INTO collections (`+columns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
		ON CONFLICT DO NOTHING RETURNING run_id`, c.values()...)
	insertItem(b, c, first)
	return func() error {
		switch {
		case found.Count >= MaxCollections:
			return ErrTooMany
		case inserted == nil:
			return ErrChanged
		default:
			return nil
		}
	}
}

// Update queues the replacement of a locked collection, which has just got a start. Why its run could not be started
// is of no interest if it is due at another time now.
func Update(b *pgx.Batch, c Collection, added Start) {
	b.Queue(`
		UPDATE collections SET (deployment, data, timeout, input, count, bytes, last_at, due_at, refusal)
			= ($2, $3, $4, $5, $6, $7, $8, $9, CASE WHEN due_at = $9 THEN refusal ELSE '' END)
		WHERE run_id = $1`,
		c.RunID, c.Deployment, c.Data, c.Timeout, c.input(), c.Count, c.Bytes, c.LastAt, c.DueAt)
	insertItem(b, c, added)
}

// insertItem queues the insertion of the last start of the collection, if it has to be remembered.
func insertItem(b *pgx.Batch, c Collection, s Start) {
	input := []byte{}
	switch {
	case c.Keep == KeepAll:
		input = s.Item()
	case s.IdempotencyKey == "":
		return
	}
	b.Queue(`
		INSERT INTO collected (run_id, seq, project, idempotency_key, digest, input) VALUES ($1, $2, $3, $4, $5, $6)`,
		c.RunID, c.Count, c.Project, s.IdempotencyKey, s.Digest, atrest.Payload{
			Place:   atrest.Place{Kind: atrest.Start, Owner: string(c.RunID), Seq: c.Count},
			Project: string(c.Project), Bytes: input,
		})
}

// SetRefusal queues a note of why the run of a locked collection cannot be started.
func SetRefusal(b *pgx.Batch, id entities.RunID, reason string) {
	b.Queue(`UPDATE collections SET refusal = $2 WHERE run_id = $1`, id, reason)
}

// Close queues the deletion of a collection whose run starts in the same transaction. The idempotency keys of its
// starts are kept until retention deletes the run.
func Close(b *pgx.Batch, id entities.RunID) {
	b.Queue(`DELETE FROM collections WHERE run_id = $1`, id)
	b.Queue(`DELETE FROM collected WHERE run_id = $1 AND idempotency_key = ''`, id)
	b.Queue(`UPDATE collected SET input = '' WHERE run_id = $1 AND input <> ''`, id)
}

// Remember queues the insertion of the start that has made the collection full, if it has an idempotency key.
func Remember(b *pgx.Batch, c Collection, s Start) {
	c.Keep = "" // nobody needs its input
	insertItem(b, c, s)
}

// Drop queues the deletion of a collection with its starts. The check that it returns fails with [ErrNotFound].
func Drop(b *pgx.Batch, project entities.Project, id entities.RunID) (check func() error) {
	var deleted *opened
	pg.LoadInto(b, &deleted, `DELETE FROM collections WHERE run_id = $1 AND project = $2 RETURNING run_id`, id, project)
	b.Queue(`DELETE FROM collected WHERE run_id = $1 AND project = $2`, id, project)
	return func() error {
		if deleted == nil {
			return ErrNotFound
		}
		return nil
	}
}

// Payloads implements [atrest.Row].
func (c *Collection) Payloads(o *atrest.Opener) { o.Bytes(c.input().Place, &c.Input) }

// input returns the input as an argument.
func (c *Collection) input() atrest.Payload {
	return atrest.Payload{
		Place:   atrest.Place{Kind: atrest.Collection, Owner: string(c.RunID)},
		Project: string(c.Project), Bytes: append([]byte{}, c.Input...),
	}
}

// values returns the values of columns.
func (c Collection) values() []any {
	return []any{
		c.RunID, c.Project, c.Workflow, c.Kind, c.Key, c.Quiet, c.MaxWait, c.Keep, c.Size, c.MaxBytes, c.Deployment, c.Data,
		c.Timeout, c.input(), c.Count, c.Bytes, c.FirstAt, c.LastAt, c.DueAt, c.Refusal,
	}
}
