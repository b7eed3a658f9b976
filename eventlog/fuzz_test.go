package eventlog

import (
	"errors"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

// FuzzEventCursor ensures that a cursor stands for one position, and that every text is a cursor or refused as
// the client's fault. The bare ID of an event is one, too.
func FuzzEventCursor(f *testing.F) {
	f.Add(EventCursorAt(1))
	f.Add(EventCursorAt(1<<63 - 1))
	f.Add(string(entities.EventIDAt(7)))
	f.Add("eid:eid:" + string(entities.EventIDAt(7)))
	f.Add("eid:evnt_-0000000000000000000000001")
	f.Add("eid:")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		err := ValidateEventCursor(text)
		if err != nil {
			if !errors.Is(err, entities.ErrInvalid) {
				t.Errorf("%q: got %v, which is not an ErrInvalid", text, err)
			}
			return
		}
		seq, err := parseEventCursor(text)
		if want := EventCursorAt(seq); err != nil || seq < 1 || strings.TrimPrefix(want, "eid:") != strings.TrimPrefix(text, "eid:") {
			t.Errorf("%q is position %d, %v, whose cursor is %q", text, seq, err, want)
		}
	})
}
