package eventlog

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// streamTexts reads the texts of a closed stream.
func streamTexts(t *testing.T, f *fixture, name entities.StreamName) []string {
	t.Helper()
	chunks, stream, err := read.NewStreams(f.pool, f.hub, f.clock.now).Chunks(t.Context(), home, name, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	if len(chunks) > 0 && stream.ClosedAt == nil {
		t.Errorf("stream %s is open", name)
	}
	var texts []string
	for _, c := range chunks {
		texts = append(texts, string(c.Data))
	}
	return texts
}

func TestAppendWritesWholeStreams(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := newRunID()
	if _, err := f.Append(t.Context(), home, runCreated(id)); err != nil {
		t.Fatal(err)
	}
	notifications, cancel := f.hub.Subscribe(read.StreamTopic(home, "answer"))
	defer cancel()
	withText := func(text string) AppendOptions {
		return AppendOptions{Streams: []WholeStream{{"answer", []byte(text)}}}
	}

	broken := withText("never")
	broken.With = UnderLock{Write: fails}
	if _, err := f.AppendAll(t.Context(), home, id, nil, broken); !hasFailed(err) {
		t.Errorf("got error %v", err)
	}
	if _, err := f.AppendAll(t.Context(), home, newRunID(), nil, withText("never")); !errors.Is(err, entities.ErrRunNotFound) {
		t.Errorf("got error %v", err)
	}
	if got := streamTexts(t, f, "answer"); got != nil || len(notifications) != 0 {
		t.Errorf("failed appends wrote %q and notified %d times", got, len(notifications))
	}
	if _, err := f.AppendAll(t.Context(), home, id, nil, AppendOptions{
		Streams: []WholeStream{{"a\x00b", nil}},
	}); !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("got error %v", err)
	}

	for _, text := range []string{"first", "second"} { // the second is ignored: the stream is closed
		if _, err := f.AppendAll(t.Context(), home, id, nil, withText(text)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"first"}, streamTexts(t, f, "answer")); diff != "" || len(notifications) != 1 {
		t.Errorf("the stream (-want +got), notified %d times:\n%s", len(notifications), diff)
	}
}
