package eventlog

import (
	"errors"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// FuzzEventCursor checks that a cursor stands for one position, and that every text is a cursor or fails with
// ErrInvalid. An event ID is a cursor too.
func FuzzEventCursor(f *testing.F) {
	f.Add(read.EventCursorAt(1))
	f.Add(read.EventCursorAt(1<<63 - 1))
	f.Add(string(entities.Event{Seq: 7}.ID()))
	f.Add("eid:eid:" + string(entities.Event{Seq: 7}.ID()))
	f.Add("eid:evnt_-0000000000000000000000001")
	f.Add("eid:")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		seq, err := read.ParseEventCursor(text)
		if err != nil {
			if !errors.Is(err, entities.ErrInvalid) {
				t.Errorf("%q: got %v, which is not an ErrInvalid", text, err)
			}
			return
		}
		if want := read.EventCursorAt(seq); seq < 1 || strings.TrimPrefix(want, "eid:") != strings.TrimPrefix(text, "eid:") {
			t.Errorf("%q is position %d, whose cursor is %q", text, seq, want)
		}
	})
}
