package eventlog

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// wrote reads the texts of a stream that is closed.
func wrote(t *testing.T, f *fixture, name entities.StreamName) []string {
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

func TestATurnWritesStreamsWhole(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := newRunID()
	if _, err := f.Append(t.Context(), home, runCreated(id)); err != nil {
		t.Fatal(err)
	}
	news, cancel := f.hub.Subscribe(read.StreamTopic(home, "answer"))
	defer cancel()
	turn := func(text string) AppendOptions {
		return AppendOptions{Streams: []WholeStream{{"answer", []byte(text)}}}
	}

	broken := turn("never")
	broken.Finish = func(context.Context, pgx.Tx, *pgx.Batch) error { return errBroken }
	if _, err := f.AppendAll(t.Context(), home, id, nil, broken); !errors.Is(err, errBroken) {
		t.Errorf("got error %v", err)
	}
	if _, err := f.AppendAll(t.Context(), home, newRunID(), nil, turn("never")); !errors.Is(err, entities.ErrRunNotFound) {
		t.Errorf("got error %v", err)
	}
	if got := wrote(t, f, "answer"); got != nil || len(news) != 0 {
		t.Errorf("turns that failed wrote %q and hinted %d times", got, len(news))
	}
	if _, err := f.AppendAll(t.Context(), home, id, nil, AppendOptions{
		Streams: []WholeStream{{"a\x00b", nil}},
	}); !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("got error %v", err)
	}

	for _, text := range []string{"first", "second"} { // which comes too late
		if _, err := f.AppendAll(t.Context(), home, id, nil, turn(text)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"first"}, wrote(t, f, "answer")); diff != "" || len(news) != 1 {
		t.Errorf("the stream (-want +got), hinted %d times:\n%s", len(news), diff)
	}
}
