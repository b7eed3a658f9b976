package upkeep

import (
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestImportRejectsInvalidValues wants an error that explains each, and nothing written.
func TestImportRejectsInvalidValues(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.full(t)
	f.must(t, onRun(id, entities.EventRunCompleted))
	f.write(t, home, id, "stream")
	var records []Record
	keepRecord := func(r Record) error { records = append(records, r); return nil }
	if _, err := f.Export(t.Context(), id, keepRecord); err != nil {
		t.Fatal(err)
	}
	f.exec(t, `DELETE FROM runs`)
	f.exec(t, `DELETE FROM streams`)
	empty := f.contents(t)
	// load imports the records after a change of copies of the first run, event and stream among them.
	load := func(change func(*RunRecord, *EventRecord, *StreamRecord)) error {
		var run RunRecord
		var event EventRecord
		var stream StreamRecord
		for _, r := range records {
			switch {
			case r.Run != nil:
				run = *r.Run
			case r.Event != nil && r.Event.Seq == 1:
				event = *r.Event
			case r.Stream != nil:
				stream = *r.Stream
			}
		}
		change(&run, &event, &stream)
		i := -1
		_, err := f.Import(t.Context(), func() (Record, error) {
			if i++; i == len(records) {
				return Record{}, io.EOF
			}
			switch r := records[i]; {
			case r.Run != nil:
				return Record{Run: &run}, nil
			case r.Event != nil && r.Event.Seq == 1:
				return Record{Event: &event}, nil
			case r.Stream != nil:
				return Record{Stream: &stream}, nil
			default:
				return r, nil
			}
		})
		return err
	}
	for name, change := range map[string]func(*RunRecord, *EventRecord, *StreamRecord){
		"no project":         func(r *RunRecord, _ *EventRecord, _ *StreamRecord) { r.Project = "" },
		"odd project":        func(r *RunRecord, _ *EventRecord, _ *StreamRecord) { r.Project = "../a" },
		"NUL in project":     func(r *RunRecord, _ *EventRecord, _ *StreamRecord) { r.Project = "a\x00" },
		"NUL in workflow":    func(_ *RunRecord, e *EventRecord, _ *StreamRecord) { e.Data.WorkflowName = "a\x00" },
		"NUL in correlation": func(_ *RunRecord, e *EventRecord, _ *StreamRecord) { e.CorrelationID = "a\x00" },
		"endless workflow": func(_ *RunRecord, e *EventRecord, _ *StreamRecord) {
			for range 1000 {
				e.Data.WorkflowName += rand.Text() // which no index can hold, compressed or not
			}
		},
		"impossible time": func(_ *RunRecord, e *EventRecord, _ *StreamRecord) {
			e.CreatedAt = time.Date(999999, 1, 1, 0, 0, 0, 0, time.UTC)
		},
		"no stream name":     func(_ *RunRecord, _ *EventRecord, s *StreamRecord) { s.Name = "" },
		"NUL in stream name": func(_ *RunRecord, _ *EventRecord, s *StreamRecord) { s.Name = "a\x00" },
		"endless stream name": func(_ *RunRecord, _ *EventRecord, s *StreamRecord) {
			s.Name = entities.StreamName(strings.Repeat("x", 5000))
		},
		"negative chunks": func(_ *RunRecord, _ *EventRecord, s *StreamRecord) { s.Chunks = -1 },
	} {
		if err := load(change); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	if diff := cmp.Diff(empty, f.contents(t)); diff != "" {
		t.Errorf("something was written (-before +after):\n%s", diff)
	}
	if err := load(func(*RunRecord, *EventRecord, *StreamRecord) {}); err != nil {
		t.Errorf("the records themselves: %v", err)
	}
}
