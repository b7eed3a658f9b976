package upkeep

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// rowType describes one type of rows that belong to a run and are a fold of its log, so that verify and rebuild treat
// all types alike. Rows are identified by a key that is unique in the run.
type rowType struct {
	name string
	// fold returns the rows that the log demands.
	fold func(*eventlog.Snapshot) map[string]any
	// each reads the rows that exist in a span of keys.
	each func(context.Context, pg.Querier, entities.RunID, store.Span, func(key string, row any) error) error
	// insert queues the insertion of a row. It calls conflict, with the reason, for a row that cannot be inserted.
	insert func(b *pgx.Batch, row any, at time.Time, conflict func(string))
	// optional reports whether a folded row may exist or not.
	optional func(row any, at time.Time) bool
}

// expected returns the rows that the log demands in a span of keys.
func (t rowType) expected(s *eventlog.Snapshot, span store.Span) map[string]any {
	rows := t.fold(s)
	maps.DeleteFunc(rows, func(key string, _ any) bool { return key <= span.After || key > span.UpTo })
	return rows
}

// newRowType describes rows of type T. Verify compares every field of T.
func newRowType[ID ~string, T any](
	name string,
	fold func(*eventlog.Snapshot) map[ID]T,
	each func(context.Context, pg.Querier, entities.RunID, store.Span, func(T) error) error,
	key func(T) ID,
	insert func(b *pgx.Batch, row *T, at time.Time, conflict func(string)),
) rowType {
	return rowType{
		name: name,
		fold: func(s *eventlog.Snapshot) map[string]any {
			all := map[string]any{}
			for id, row := range fold(s) {
				all[string(id)] = row
			}
			return all
		},
		each: func(
			ctx context.Context, q pg.Querier, id entities.RunID, s store.Span, do func(string, any) error,
		) error {
			return each(ctx, q, id, s, func(row T) error { return do(string(key(row)), row) })
		},
		insert: func(b *pgx.Batch, row any, at time.Time, conflict func(string)) {
			item, _ := row.(T) // fold made it
			insert(b, &item, at, conflict)
		},
		optional: func(any, time.Time) bool { return false },
	}
}

func (t rowType) withOptional(optional func(row any, at time.Time) bool) rowType {
	t.optional = optional
	return t
}

// rowTypes are all rows of a run except its own. A new type also needs a field in [eventlog.Snapshot] and a deletion in
// [store.DeleteRows].
var rowTypes = []rowType{
	newRowType(entities.KindStep,
		func(s *eventlog.Snapshot) map[entities.StepID]entities.Step { return s.Steps },
		store.EachStep, func(s entities.Step) entities.StepID { return s.ID }, unconditional(store.InsertStep)),
	newRowType(entities.KindHook,
		func(s *eventlog.Snapshot) map[entities.HookID]entities.Hook { return s.Hooks },
		store.EachHook, func(h entities.Hook) entities.HookID { return h.ID }, restoreHook).
		withOptional(isExpiredHook),
	newRowType(entities.KindWait,
		func(s *eventlog.Snapshot) map[entities.WaitID]entities.Wait { return s.Waits },
		store.EachWait, func(w entities.Wait) entities.WaitID { return w.ID }, unconditional(store.InsertWait)),
	newRowType("attribute",
		func(s *eventlog.Snapshot) map[string]store.RunAttribute { return store.RunAttributes(s.Run) },
		store.EachAttribute, func(a store.RunAttribute) string { return a.Key }, unconditional(store.InsertAttribute)),
	newRowType("value",
		func(s *eventlog.Snapshot) map[string]store.RunValue { return store.RunValues(s.Run.ID, s.Store) },
		store.EachValue, func(v store.RunValue) string { return v.Key }, unconditional(store.InsertValue)),
}

// unconditional wraps an insertion that no other run's row can prevent.
func unconditional[T any](insert func(pg.Writer, *T)) func(*pgx.Batch, *T, time.Time, func(string)) {
	return func(b *pgx.Batch, row *T, _ time.Time, _ func(string)) { insert(pg.Batch{Batch: b}, row) }
}

// restoreHook inserts a hook unless another one holds its token, which is unique in a project.
func restoreHook(b *pgx.Batch, h *entities.Hook, at time.Time, conflict func(string)) {
	store.RestoreHook(b, h, at, func(holder entities.Hook) {
		conflict(fmt.Sprintf("it cannot be restored: hook %s of run %s has its token now", holder.ID, holder.RunID))
	})
}

// isExpiredHook reports whether a hook no longer holds its token. The next run that claims the token deletes the row,
// and no event of the hook's own run records that.
func isExpiredHook(row any, at time.Time) bool {
	hook, _ := row.(entities.Hook)
	return !hook.Holds(at)
}
