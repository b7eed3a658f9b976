package upkeep

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// rowType is a type of rows that belong to a run and are a fold of its log, so that verify and rebuild treat all types
// alike.
type rowType interface {
	// verify compares the rows in a span with those that the log demands.
	verify(ctx context.Context, v *verifier, s *eventlog.Snapshot, span store.Span) error
	// restore queues the insertion of the rows that the log demands in a span.
	restore(b *pgx.Batch, s *eventlog.Snapshot, span store.Span, at time.Time, report func(Difference))
}

// rows are the rows of type T, identified by an ID that is unique in the run. Verify compares every field of T.
type rows[ID ~string, T any] struct {
	name string
	// fold returns the rows that the log demands.
	fold func(*eventlog.Snapshot) map[ID]T
	// each reads the rows that exist in a span of IDs.
	each func(context.Context, pg.Querier, entities.RunID, store.Span, func(T) error) error
	id   func(T) ID
	// insert queues the insertion of a row. It calls conflict, with the reason, for a row that cannot be inserted.
	insert func(b *pgx.Batch, row *T, at time.Time, conflict func(string))
}

// rowTypes are all rows of a run except its own. A new type also needs a field in [eventlog.Snapshot] and a deletion in
// [store.DeleteRows].
var rowTypes = []rowType{
	rows[entities.StepID, entities.Step]{
		entities.KindStep, func(s *eventlog.Snapshot) map[entities.StepID]entities.Step { return s.Steps },
		store.EachStep, func(s entities.Step) entities.StepID { return s.ID }, unconditional(store.InsertStep),
	},
	rows[entities.HookID, entities.Hook]{
		entities.KindHook, func(s *eventlog.Snapshot) map[entities.HookID]entities.Hook { return s.Hooks },
		store.EachHook, func(h entities.Hook) entities.HookID { return h.ID }, restoreHook,
	},
	rows[entities.WaitID, entities.Wait]{
		entities.KindWait, func(s *eventlog.Snapshot) map[entities.WaitID]entities.Wait { return s.Waits },
		store.EachWait, func(w entities.Wait) entities.WaitID { return w.ID }, unconditional(store.InsertWait),
	},
	rows[string, store.RunAttribute]{
		"attribute", func(s *eventlog.Snapshot) map[string]store.RunAttribute { return store.RunAttributes(s.Run) },
		store.EachAttribute, func(a store.RunAttribute) string { return a.Key }, unconditional(store.InsertAttribute),
	},
	rows[string, store.RunValue]{
		"value", func(s *eventlog.Snapshot) map[string]store.RunValue { return store.RunValues(s.Run.ID, s.Store) },
		store.EachValue, func(v store.RunValue) string { return v.Key }, unconditional(store.InsertValue),
	},
}

// expected returns the rows that the log demands in a span of IDs.
func (t rows[ID, T]) expected(s *eventlog.Snapshot, span store.Span) map[ID]T {
	all := maps.Clone(t.fold(s))
	maps.DeleteFunc(all, func(id ID, _ T) bool { return string(id) <= span.After || string(id) > span.UpTo })
	return all
}

func (t rows[ID, T]) verify(ctx context.Context, v *verifier, s *eventlog.Snapshot, span store.Span) error {
	missing := t.expected(s, span)
	err := t.each(ctx, v.tx, v.run.ID, span, func(row T) error {
		id := t.id(row)
		entity := t.name + " " + string(id)
		if want, ok := missing[id]; ok {
			v.compare(entity, want, row)
		} else {
			v.differ(entity, "row", "none", "exists")
		}
		delete(missing, id)
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(missing)) { // sorted so that a repeated verify prints the same lines
		if !isOptional(missing[id], v.at) {
			v.differ(t.name+" "+string(id), "row", "exists", "none")
		}
	}
	return nil
}

func (t rows[ID, T]) restore(
	b *pgx.Batch, s *eventlog.Snapshot, span store.Span, at time.Time, report func(Difference),
) {
	all := t.expected(s, span)
	for _, id := range slices.Sorted(maps.Keys(all)) {
		row := all[id]
		if isOptional(row, at) {
			continue
		}
		t.insert(b, &row, at, func(conflict string) {
			report(Difference{RunID: s.Run.ID, Entity: t.name + " " + string(id), Fault: conflict})
		})
	}
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

// isOptional reports whether a row that the log demands may be missing: that of a hook which no longer holds its token.
// The next run that claims the token deletes the row, and no event of the hook's own run records that.
func isOptional(row any, at time.Time) bool {
	hook, ok := row.(entities.Hook)
	return ok && !hook.Holds(at)
}
