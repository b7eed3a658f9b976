package upkeep

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// kind is one kind of rows that are a fold of the log, as verify and rebuild see it: by the key of each row.
type rowType struct {
	name string
	// folded is the rows that there ought to be.
	folded func(*eventlog.Snapshot) map[string]any
	// rows goes through those there are.
	rows func(context.Context, pg.Querier, entities.RunID, store.Span, func(key string, row any) error) error
	// insert queues the insertion of a row at that time. It may call the function instead, with what is in
	// the way.
	insert func(b *pgx.Batch, row any, at time.Time, obstacle func(string))
	// over, if there is one, says that a row no longer counts at that time, and may be there or not.
	over func(row any, at time.Time) bool
}

// within is the rows that there ought to be whose keys are in the span.
func (k rowType) within(s *eventlog.Snapshot, span store.Span) map[string]any {
	rows := k.folded(s)
	maps.DeleteFunc(rows, func(key string, _ any) bool { return key <= span.After || key > span.UpTo })
	return rows
}

// newKind describes a kind whose rows are of type T. Every field of T is compared.
func newRowType[ID ~string, T any](
	name string,
	folded func(*eventlog.Snapshot) map[ID]T,
	rows func(context.Context, pg.Querier, entities.RunID, store.Span, func(T) error) error,
	key func(T) ID,
	insert func(b *pgx.Batch, row *T, at time.Time, obstacle func(string)),
) rowType {
	return rowType{
		name: name,
		folded: func(s *eventlog.Snapshot) map[string]any {
			all := map[string]any{}
			for id, row := range folded(s) {
				all[string(id)] = row
			}
			return all
		},
		rows: func(
			ctx context.Context, q pg.Querier, id entities.RunID, s store.Span, do func(string, any) error,
		) error {
			return rows(ctx, q, id, s, func(row T) error { return do(string(key(row)), row) })
		},
		insert: func(b *pgx.Batch, row any, at time.Time, obstacle func(string)) {
			item, _ := row.(T) // folded made it
			insert(b, &item, at, obstacle)
		},
		over: func(any, time.Time) bool { return false },
	}
}

// until makes rows of the kind count only until they are over.
func (k rowType) until(over func(row any, at time.Time) bool) rowType {
	k.over = over
	return k
}

// kinds are all rows of a run besides the run itself. Whoever adds one adds it here, its field to
// [Snapshot], and its deletion to clearRows.
var rowTypes = []rowType{
	newRowType(entities.KindStep, func(s *eventlog.Snapshot) map[entities.StepID]entities.Step { return s.Steps },
		store.EachStep, func(s entities.Step) entities.StepID { return s.ID }, unconditional(store.InsertStep)),
	newRowType(entities.KindHook, func(s *eventlog.Snapshot) map[entities.HookID]entities.Hook { return s.Hooks },
		store.EachHook, func(h entities.Hook) entities.HookID { return h.ID }, restoreHook).
		until(isExpiredHook),
	newRowType(entities.KindWait, func(s *eventlog.Snapshot) map[entities.WaitID]entities.Wait { return s.Waits },
		store.EachWait, func(w entities.Wait) entities.WaitID { return w.ID }, unconditional(store.InsertWait)),
	newRowType("attribute", func(s *eventlog.Snapshot) map[string]store.RunAttribute { return store.RunAttributes(s.Run) },
		store.EachAttribute, func(a store.RunAttribute) string { return a.Key }, unconditional(store.InsertAttribute)),
}

// always is an insertion that nothing can be in the way of.
func unconditional[T any](insert func(pg.Writer, *T)) func(*pgx.Batch, *T, time.Time, func(string)) {
	return func(b *pgx.Batch, row *T, _ time.Time, _ func(string)) { insert(pg.Batch{Batch: b}, row) }
}

// restoreHook inserts a hook unless another one holds its token, which two cannot.
func restoreHook(b *pgx.Batch, h *entities.Hook, at time.Time, obstacle func(string)) {
	store.RestoreHook(b, h, at, func(holder entities.Hook) {
		obstacle(fmt.Sprintf("it cannot be restored: hook %s of run %s has its token now", holder.ID, holder.RunID))
	})
}

// hookExpired: whoever claims the token next deletes the row, and no event of the run says so.
func isExpiredHook(row any, at time.Time) bool {
	hook, _ := row.(entities.Hook)
	return !hook.Holds(at)
}

// clearRows queues the deletion of all rows of a run besides the run itself.
func clearRows(b *pgx.Batch, id entities.RunID) {
	store.DeleteSteps(b, id)
	store.DeleteHooks(b, id)
	store.DeleteWaits(pg.Batch{Batch: b}, id)
	store.DeleteAttributes(b, id)
}

// Difference is something that is not as the log has it, or wrong with the log itself.
type Difference struct {
	RunID entities.RunID
	// Entity is what it is about: "run", "step step_…", "event 7", "stream logs".
	Entity string
	// Field is the field that differs, Log its value by the log, and Row its value in the table.
	Field, Log, Row string
	// Fault says what is wrong when that is no field.
	Fault string
}

// String is the difference on one line.
func (d Difference) String() string {
	if d.Fault != "" {
		return fmt.Sprintf("%s %s: %s", d.RunID, d.Entity, d.Fault)
	}
	return fmt.Sprintf("%s %s: %s: log says %s, row says %s", d.RunID, d.Entity, d.Field, d.Log, d.Row)
}

// differ tells the fields in which two values of one struct type differ.
func compareFields(log, row any, tell func(field, log, row string)) {
	want, got := reflect.ValueOf(log), reflect.ValueOf(row)
	for i := range want.NumField() {
		w, g := want.Field(i).Interface(), got.Field(i).Interface()
		if !equal(w, g) {
			tell(want.Type().Field(i).Name, format(w), format(g))
		}
	}
}

// same compares as the database does: times by their moment, and an empty map is one however it is made.
func equal(a, b any) bool {
	switch a := a.(type) {
	case time.Time:
		b, ok := b.(time.Time)
		return ok && a.Equal(b)
	case *time.Time:
		b, ok := b.(*time.Time)
		return ok && (a == nil) == (b == nil) && (a == nil || a.Equal(*b))
	default:
		v, w := reflect.ValueOf(a), reflect.ValueOf(b)
		if v.Kind() == reflect.Map && v.Len() == 0 && w.Len() == 0 {
			return true
		}
		return reflect.DeepEqual(a, b)
	}
}

// show is a value on a line of text.
func format(value any) string {
	v := reflect.ValueOf(value)
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return "none"
		}
		v = v.Elem()
	}
	switch value := v.Interface().(type) {
	case time.Time:
		return value.UTC().Format(time.RFC3339Nano)
	default:
		if v.Kind() == reflect.String {
			return strconv.Quote(v.String())
		}
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Sprintf("%+v", value)
		}
		return string(text)
	}
}
