package upkeep

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// Difference is one difference between the rows of a run and its log, or a fault in the log or a stream.
type Difference struct {
	RunID entities.RunID
	// Entity names the subject: "run", "step step_…", "event 7", "stream logs".
	Entity string
	// Field is the field that differs, Log its value by the log, and Row its value in the table.
	Field, Log, Row string
	// Fault describes an error that is not a differing field; the three fields above are then empty.
	Fault string
}

// String formats the difference on one line.
func (d Difference) String() string {
	if d.Fault != "" {
		return fmt.Sprintf("%s %s: %s", d.RunID, d.Entity, d.Fault)
	}
	return fmt.Sprintf("%s %s: %s: log says %s, row says %s", d.RunID, d.Entity, d.Field, d.Log, d.Row)
}

// compare reports the fields in which an entity's row differs from the fold. It uses reflection so that a new field is
// compared without anyone remembering to add it here.
func (v *verifier) compare(run entities.RunID, entity string, log, row any) {
	want, got := reflect.ValueOf(log), reflect.ValueOf(row)
	for i := range want.NumField() {
		w, g := want.Field(i).Interface(), got.Field(i).Interface()
		if !equal(w, g) {
			v.differ(run, entity, want.Type().Field(i).Name, format(w), format(g))
		}
	}
}

// equal compares as the database does: times by their instant, and a nil map equals an empty one.
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

// format formats a value on one line.
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
