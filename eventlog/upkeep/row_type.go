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
	verify(ctx context.Context, v *verifier, s span) error
	// restore queues the insertion of the rows that the logs of a project's runs demand in a span.
	restore(b *pgx.Batch, project entities.Project, s span, at time.Time, report func(Difference))
}

// rows are the rows of type T, identified by an ID that is unique in the run. Verify compares every field of T.
type rows[ID ~string, T any] struct {
	name string
	// fold returns the rows that the log demands.
	fold func(*eventlog.Snapshot) map[ID]T
	// stored are the rows that exist.
	stored store.Rows[T]
	// id returns the IDs of a row and of its run.
	id func(T) (entities.RunID, ID)
	// insert queues the insertion of a row of a project's run. It calls conflict, with the reason, for a row that cannot
	// be inserted.
	insert func(b *pgx.Batch, project entities.Project, row *T, at time.Time, conflict func(string))
}

// rowTypes are all rows of a run except its own. A new type also needs a field in [eventlog.Snapshot] and a deletion in
// [store.DeleteRows].
var rowTypes = []rowType{
	rows[entities.StepID, entities.Step]{
		entities.KindStep, func(s *eventlog.Snapshot) map[entities.StepID]entities.Step { return s.Steps },
		store.Steps,
		func(s entities.Step) (entities.RunID, entities.StepID) { return s.RunID, s.ID }, unconditional(store.InsertStep),
	},
	rows[entities.HookID, entities.Hook]{
		entities.KindHook, func(s *eventlog.Snapshot) map[entities.HookID]entities.Hook { return s.Hooks },
		store.Hooks,
		func(h entities.Hook) (entities.RunID, entities.HookID) { return h.RunID, h.ID }, restoreHook,
	},
	rows[entities.WaitID, entities.Wait]{
		entities.KindWait, func(s *eventlog.Snapshot) map[entities.WaitID]entities.Wait { return s.Waits },
		store.Waits,
		func(w entities.Wait) (entities.RunID, entities.WaitID) { return w.RunID, w.ID }, unconditional(store.InsertWait),
	},
	rows[string, store.RunAttribute]{
		"attribute", func(s *eventlog.Snapshot) map[string]store.RunAttribute { return store.RunAttributes(s.Run) },
		store.Attributes,
		func(a store.RunAttribute) (entities.RunID, string) { return a.RunID, a.Key }, unconditional(store.InsertAttribute),
	},
	rows[string, store.RunValue]{
		"value", func(s *eventlog.Snapshot) map[string]store.RunValue { return store.RunValues(s.Run.ID, s.Store) },
		store.RunStore,
		func(v store.RunValue) (entities.RunID, string) { return v.RunID, v.Key }, restoreValue,
	},
}

// expected returns the rows that the logs demand in a span.
func (t rows[ID, T]) expected(s span) map[store.Place]T {
	all := map[store.Place]T{}
	for _, run := range s.runs {
		for id, row := range t.fold(run) {
			if at := (store.Place{RunID: run.Run.ID, ID: string(id)}); s.Has(at) {
				all[at] = row
			}
		}
	}
	return all
}

func (t rows[ID, T]) verify(ctx context.Context, v *verifier, s span) error {
	missing := t.expected(s)
	err := t.stored.Each(ctx, v.tx, s.Span, func(row T) error {
		run, id := t.id(row)
		at := store.Place{RunID: run, ID: string(id)}
		if want, ok := missing[at]; ok {
			v.compare(at.RunID, t.entity(at), want, row)
		} else {
			v.differ(at.RunID, t.entity(at), "row", "none", "exists")
		}
		delete(missing, at)
		return nil
	})
	if err != nil {
		return err
	}
	for _, at := range sorted(missing) {
		if !isOptional(missing[at], v.at) {
			v.differ(at.RunID, t.entity(at), "row", "exists", "none")
		}
	}
	return nil
}

func (t rows[ID, T]) entity(at store.Place) string { return t.name + " " + at.ID }

// sorted returns the places of rows in their order, so that a repeated command prints the same lines.
func sorted[T any](rows map[store.Place]T) []store.Place {
	return slices.SortedFunc(maps.Keys(rows), store.Place.Compare)
}

func (t rows[ID, T]) restore(
	b *pgx.Batch, project entities.Project, s span, at time.Time, report func(Difference),
) {
	all := t.expected(s)
	for _, place := range sorted(all) {
		row := all[place]
		if isOptional(row, at) {
			continue
		}
		t.insert(b, project, &row, at, func(conflict string) {
			report(Difference{RunID: place.RunID, Entity: t.entity(place), Fault: conflict})
		})
	}
}

// unconditional wraps an insertion that no other run's row can prevent.
func unconditional[T any](
	insert func(pg.Writer, *T),
) func(*pgx.Batch, entities.Project, *T, time.Time, func(string)) {
	return func(b *pgx.Batch, _ entities.Project, row *T, _ time.Time, _ func(string)) {
		insert(pg.Batch{Batch: b}, row)
	}
}

// restoreValue inserts a value of a store.
func restoreValue(b *pgx.Batch, project entities.Project, v *store.RunValue, _ time.Time, _ func(string)) {
	store.InsertValue(pg.Batch{Batch: b}, project, v)
}

// restoreHook inserts a hook unless another one holds its token, which is unique in a project.
func restoreHook(b *pgx.Batch, _ entities.Project, h *entities.Hook, at time.Time, conflict func(string)) {
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
