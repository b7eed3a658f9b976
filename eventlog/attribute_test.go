package eventlog

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestI2AttributeRowsMatchRun sets, changes and removes attributes, also several at once and with the creation of the
// run. The fixture's rows compares the rows of attributes with the run's attributes.
func TestI2AttributeRowsMatchRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := newRunID()
	create := runCreated(id)
	create.Data.Attributes = map[string]string{"a": "1", "b": "2"}
	f.must(t, create)
	for i, tt := range []struct {
		changes []entities.AttributeChange
		want    map[string]string
	}{
		{nil, map[string]string{"a": "1", "b": "2"}},
		{[]entities.AttributeChange{{Key: "a", Value: ptr("3")}}, map[string]string{"a": "3", "b": "2"}},
		{[]entities.AttributeChange{{Key: "b"}, {Key: "c", Value: ptr("")}}, map[string]string{"a": "3", "c": ""}},
		{[]entities.AttributeChange{{Key: "c", Value: ptr("")}, {Key: "none"}}, map[string]string{"a": "3", "c": ""}},
		{[]entities.AttributeChange{{Key: "a"}, {Key: "c"}}, map[string]string{}},
		{[]entities.AttributeChange{{Key: "a", Value: ptr("4")}}, map[string]string{"a": "4"}},
	} {
		if tt.changes != nil {
			r := on(id, entities.EventAttrSet, "attr_"+string(rune('0'+i)))
			r.Data.Changes = tt.changes
			f.must(t, r)
		}
		if diff := cmp.Diff(tt.want, f.rows(t, id).Run.Attributes); diff != "" {
			t.Errorf("after change %d (-want +got):\n%s", i, diff)
		}
	}
	f.must(t, onRun(id, entities.EventRunCompleted))
	f.rows(t, id) // attributes remain after the end of the run
}
