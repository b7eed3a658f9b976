package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/entities/kv"
	"github.com/stepwell-dev/stepwell/pg"
)

// RunValue is a row of table run_store: the value of a key in the store of a run.
type RunValue struct {
	RunID entities.RunID
	Key   string
	// Value is JSON, as it was written.
	Value string
	// Seq is the position of the event that wrote it.
	Seq int64
}

// Payloads implements [atrest.Row].
func (v *RunValue) Payloads(o *atrest.Opener) { o.Text(valuePlace(v.RunID, v.Seq), &v.Value) }

func valuePlace(id entities.RunID, seq int64) atrest.Place {
	return atrest.Place{Kind: atrest.Value, Owner: string(id), Seq: seq}
}

// valueSize is the size of a value as it was written, in SQL: see [atrest.EncodeText].
var valueSize = fmt.Sprintf(`CASE WHEN starts_with(value, '~') THEN (octet_length(value) - 1) * 3 / 4 - %d
	ELSE octet_length(value) END`, atrest.SealedOverhead)

const valueColumns = `run_id, key, value, seq`

// RunValues returns the rows that the store of a run must have, by key.
func RunValues(id entities.RunID, store map[string]kv.Value) map[string]RunValue {
	rows := make(map[string]RunValue, len(store))
	for key, v := range store {
		rows[key] = RunValue{id, key, string(v.JSON), v.Seq}
	}
	return rows
}

// LoadSizes queues a read of a run's store without the values themselves.
func LoadSizes(b *pgx.Batch, runID entities.RunID, into map[string]kv.Value) {
	type row struct {
		Key  string
		Seq  int64
		Size int
	}
	pg.LoadEach(b, func(r row) { into[r.Key] = kv.Value{Seq: r.Seq, Size: r.Size} },
		`SELECT key, seq, `+valueSize+` AS size FROM run_store WHERE run_id = $1`, runID)
}

// WriteValues adds the writes that turn the store before into that after; none if they are the same. Values that
// differ must have their JSON in after.
func WriteValues(w pg.Writer, run *entities.Run, before, after map[string]kv.Value) {
	var keys []string
	var values []atrest.Text
	var seqs []int64
	for _, key := range sortedKeys(after) {
		if v := after[key]; v.Seq != before[key].Seq {
			keys, seqs = append(keys, key), append(seqs, v.Seq)
			values = append(values, atrest.Text{
				Place: valuePlace(run.ID, v.Seq), Project: string(run.Project), Bytes: v.JSON,
			})
		}
	}
	if len(keys) > 0 {
		w.Add(pg.Write{SQL: `
			INSERT INTO run_store (` + valueColumns + `)
			SELECT $1::text, key, value, seq FROM unnest($2::text[], $3::text[], $4::bigint[]) AS given (key, value, seq)
			WHERE true`,
			Rest: ` ON CONFLICT (run_id, key) DO UPDATE SET value = excluded.value, seq = excluded.seq`,
			Args: []any{run.ID, keys, values, seqs},
		})
	}
	deleteKeys(w, `run_store`, run.ID, before, after)
}

// InsertValue adds the insertion of a row of a project's run.
func InsertValue(w pg.Writer, project entities.Project, v *RunValue) {
	w.Add(pg.Write{What: "insert value", SQL: `
		INSERT INTO run_store (` + valueColumns + `) SELECT $1::text, $2::text, $3::text, $4::bigint WHERE true`,
		Args: []any{v.RunID, v.Key, atrest.Text{
			Place: valuePlace(v.RunID, v.Seq), Project: string(project), Bytes: []byte(v.Value),
		}, v.Seq},
	})
}

// Values reads the store of a run, in the order of the keys; nothing if the values have more than the most bytes
// together.
func Values(ctx context.Context, q pg.Querier, runID entities.RunID, most int) ([]RunValue, error) {
	values, err := pg.CollectAll[RunValue](q.Query(ctx, `
		SELECT `+valueColumns+` FROM run_store
		WHERE run_id = $1 AND (SELECT sum(`+valueSize+`) FROM run_store WHERE run_id = $1) <= $2
		ORDER BY key`, runID, most))
	return values, pg.Wrap(err, "read store of %s", runID)
}

// LoadValues queues a read of the store of a run.
func LoadValues(b *pgx.Batch, runID entities.RunID, take func(RunValue)) {
	pg.LoadEach(b, take, `SELECT `+valueColumns+` FROM run_store WHERE run_id = $1`, runID)
}

// SizeOfValues returns how many bytes the values of a run's store have together.
func SizeOfValues(ctx context.Context, q pg.Querier, runID entities.RunID) (int64, error) {
	size, err := pg.CollectValue[int64](q.Query(ctx,
		`SELECT coalesce(sum(`+valueSize+`), 0)::bigint FROM run_store WHERE run_id = $1`, runID))
	return size, pg.Wrap(err, "measure store of %s", runID)
}

// ValueOf reads the value of a key in the store of a run. It fails with [kv.ErrKeyNotFound].
func ValueOf(ctx context.Context, q pg.Querier, runID entities.RunID, key string) (RunValue, error) {
	rows, err := q.Query(ctx, `SELECT `+valueColumns+` FROM run_store WHERE run_id = $1 AND key = $2`, runID, key)
	v, err := pg.CollectOne[RunValue](rows, err, kv.ErrKeyNotFound)
	return v, pg.Wrap(err, "read key %q of the store of %s", key, runID)
}
