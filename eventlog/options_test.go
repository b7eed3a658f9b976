package eventlog

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
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
	broken.Finish = func(context.Context, pgx.Tx, *pgx.Batch) error { return errBroken }
	if _, err := f.AppendAll(t.Context(), home, id, nil, broken); !errors.Is(err, errBroken) {
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

func TestSecrets(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := admin.NewSecrets(f.pool, f.clock.now)
	put := func(project entities.Project, name string, values ...admin.SecretValue) {
		t.Helper()
		if _, err := s.Put(t.Context(), project, name, values); err != nil {
			t.Fatal(err)
		}
	}
	values := func(project entities.Project, name string, want ...admin.SecretValue) {
		t.Helper()
		got, err := s.Values(t.Context(), project, name)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s of %s: error %v, values differ: %v", name, project, err, diff != "")
		}
	}
	put(home, "stripe", "old")
	put(stranger, "stripe", "theirs")
	f.clock.move(1)
	put(home, "stripe", "new", "old")
	values(home, "stripe", "new", "old")
	values(stranger, "stripe", "theirs")
	list, err := s.List(t.Context(), home)
	if err != nil || len(list) != 1 || list[0].Name != "stripe" || !list[0].CreatedAt.Equal(day) {
		t.Errorf("list: %v, %v", list, err)
	}
	if err := s.Delete(t.Context(), home, "stripe"); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"delete again": s.Delete(t.Context(), home, "stripe"),
		"read":         func() error { _, err := s.Values(t.Context(), home, "stripe"); return err }(),
	} {
		if !errors.Is(err, admin.ErrSecretNotFound) {
			t.Errorf("%s: got error %v", what, err)
		}
	}
	values(stranger, "stripe", "theirs")
}
