package why

import (
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/starts/collection"
)

func TestExplainCollection(t *testing.T) {
	t.Parallel()
	noon := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	waits := collection.Collection{Count: 3, FirstAt: noon.Add(-time.Hour), DueAt: noon.Add(time.Minute)}
	due := collection.Collection{Count: 3, DueAt: noon.Add(-time.Minute)}
	late := collection.Collection{Count: 3, DueAt: noon.Add(-2 * time.Minute)}
	refused := due
	refused.Refusal = "no app has it"
	again := refused // a start has come since
	again.DueAt = noon.Add(time.Minute)
	work := TaskState{ID: "msg_1", DueAt: noon.Add(time.Second)}
	failing, parked := work, work
	failing.LastError, parked.ParkedAt = "internal", &noon
	for name, tt := range map[string]struct {
		collection collection.Collection
		work       *TaskState
		want       string // the kinds, with when they end
	}{
		"collects":           {waits, &work, "collecting until 12:01:00"},
		"is due":             {due, &work, "due"},
		"is just starting":   {due, nil, "due"},
		"has lost its work":  {late, nil, "parked"},
		"refused":            {refused, &work, "refused until 12:00:01"},
		"refused, and again": {again, &work, "refused until 12:00:01, collecting until 12:01:00"},
		"fails":              {due, &failing, "task_fails until 12:00:01"},
		"parked":             {refused, &parked, "parked"},
		"parked, collects":   {waits, &parked, "parked, collecting until 12:01:00"},
	} {
		var got []string
		for _, r := range ExplainCollection(CollectionFacts{tt.collection, tt.work}, noon) {
			text := string(r.Kind)
			if r.At != nil {
				text += " until " + r.At.Format(time.TimeOnly)
			}
			got = append(got, text)
		}
		if got := strings.Join(got, ", "); got != tt.want {
			t.Errorf("%s: got %s, want %s", name, got, tt.want)
		}
	}
	text := ExplainCollection(CollectionFacts{waits, nil}, noon)[0].Text
	if want := "it collects starts until 2027-03-01T12:01:00Z, 3 so far: wait, or flush it"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
}
