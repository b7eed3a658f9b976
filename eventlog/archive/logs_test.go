package archive

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/eventlog/archive/s3test"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/runfile"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/pg"
)

// storing is a folder, a bucket or the database.
type storing interface {
	Store(context.Context, entities.Project, entities.RunID) (upkeep.RunSize, error)
	Open(context.Context, entities.Project, entities.RunID) (io.ReadCloser, error)
}

// remove archives and deletes the run.
func (f *fixture) remove(t *testing.T, s storing, listed time.Duration) {
	t.Helper()
	done := check.Value(upkeep.NewRetention(f.pool, upkeep.RetentionOptions{
		Keep: time.Nanosecond, Archive: s.Store, Listed: listed,
		DeleteRelated: func(context.Context, pgx.Tx, entities.Project, []entities.RunID) error { return nil },
	}).Pass(t.Context()))(t)
	check.Equal(t, "removed runs", done.Runs, 1)
}

// pages reads the log of the archived run page by page.
func (f *fixture) pages(t *testing.T, logs *runfile.Logs, limit int, with read.Payloads) (events []entities.Event) {
	t.Helper()
	for after := int64(0); ; {
		listing := check.Value(logs.Events(t.Context(), project, f.run, after, limit, with))(t)
		for _, e := range listing.Entries {
			events, after = append(events, e.Event()), e.Seq
		}
		if !listing.More {
			return events
		}
		check.Equal(t, "size of a page", len(listing.Entries), limit)
	}
}

// TestArchivedRunsAreFoundAndRead: from a folder, a bucket and the database, without an import.
func TestArchivedRunsAreFoundAndRead(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T, *fixture) storing{
		"folder": func(t *testing.T, f *fixture) storing { return f.folder(t) },
		"bucket": func(t *testing.T, f *fixture) storing { return f.bucket(t, access(s3test.New(t))) },
		"database": func(t *testing.T, f *fixture) storing {
			f.enlarge(t, 2)
			return f.database()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			run := check.Value(store.RunByID(t.Context(), f.pool, project, f.run))(t)
			log := read.New(f.pool, nil, nil)
			events := check.Value(log.Portable(t.Context(), f.run, 0, run.LastSeq))(t)
			place := open(t, f)
			f.remove(t, place, time.Hour)
			filter := store.RunFilter{Attributes: map[string]string{"x": "\u2028 y"}, AnyStatus: []entities.RunStatus{"failed"}}
			found, _, err := store.ListArchived(t.Context(), f.pool, project, filter, pg.Page{Limit: 10})
			check.NoError(t, err)
			if diff := cmp.Diff([]entities.Run{run}, found); diff != "" {
				t.Errorf("the list differs (-want +got):\n%s", diff)
			}
			if _, err := store.ArchivedRun(t.Context(), f.pool, "away", f.run); !errors.Is(err, entities.ErrRunNotFound) {
				t.Errorf("another project got the run: %v", err)
			}
			logs := runfile.NewLogs(place.Open, atrest.Identity{})
			for i := range events { // a list has no payloads that are too large for it
				if len(events[i].Payload) > read.MaxListedPayload {
					events[i].Payload = nil
				}
			}
			for _, limit := range []int{1, 4, 11, 1000} {
				if diff := cmp.Diff(events, f.pages(t, logs, limit, read.WithPayloads), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("pages of %d: the log differs (-want +got):\n%s", limit, diff)
				}
			}
			for _, e := range f.pages(t, logs, 5, read.WithoutPayloads) {
				if e.Payload != nil || e.Extra != nil {
					t.Errorf("event %d has a payload", e.Seq)
				}
			}
			for where, read := range map[string]func() error{
				"another project": func() error { _, err := logs.Events(t.Context(), "away", f.run, 0, 1, 0); return err },
				"another run":     func() error { _, err := logs.Events(t.Context(), project, f.run+"x", 0, 1, 0); return err },
			} {
				if err := read(); !errors.Is(err, runfile.ErrNotArchived) {
					t.Errorf("%s: got %v, want %v", where, err, runfile.ErrNotArchived)
				}
			}
		})
	}
}

// TestArchivedRunsAreForgottenByAPass: the file can still be read. See also TestForgottenFilesAreDeleted.
func TestArchivedRunsAreForgottenByAPass(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	folder := f.folder(t)
	f.remove(t, folder, time.Nanosecond)
	if _, err := store.ArchivedRun(t.Context(), f.pool, project, f.run); !errors.Is(err, entities.ErrRunNotFound) {
		t.Errorf("got %v, want %v", err, entities.ErrRunNotFound)
	}
	check.Equal(t, "events", len(f.pages(t, runfile.NewLogs(folder.Open, atrest.Identity{}), 100, read.WithoutPayloads)), 11)
}

// TestUnreadableFilesAreTold: the client learns what is wrong, and no path.
func TestUnreadableFilesAreTold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	folder := f.folder(t)
	check.Value(folder.Store(t.Context(), project, f.run))(t)
	path := folder.Path(project, f.run)
	whole := check.Value(os.ReadFile(path))(t)
	down := s3test.New(t)
	down.Stop()
	for name, tt := range map[string]struct {
		open runfile.Open
		data []byte
		want error
	}{
		"no archive":  {nil, whole, runfile.ErrUnavailable},
		"no answer":   {f.bucket(t, access(down)).Open, whole, runfile.ErrUnavailable},
		"cut off":     {folder.Open, whole[:len(whole)/2], runfile.ErrDamaged},
		"not a file":  {folder.Open, []byte("{}"), runfile.ErrDamaged},
		"other run's": {folder.Open, f.other(t), runfile.ErrDamaged},
	} {
		check.NoError(t, os.WriteFile(path, tt.data, 0o600))
		_, err := runfile.NewLogs(tt.open, atrest.Identity{}).Events(t.Context(), project, f.run, 0, 1000, read.WithPayloads)
		public, ok := err.(interface{ Public() string })
		if !errors.Is(err, tt.want) || errors.Is(err, entities.ErrInvalid) || !ok || public.Public() != tt.want.Error() {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
}

// other returns the file of another run.
func (f *fixture) other(t *testing.T) []byte {
	t.Helper()
	return newFixture(t).file(t)
}
