package read

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// plantLog creates run wrun_1 with a log of so many events, which have the payload.
func plantLog(t *testing.T, pool *pgxpool.Pool, events int, payload string) {
	t.Helper()
	testdb.Exec(t, pool, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, driver, last_seq, created_at,
			updated_at)
		VALUES ('wrun_1', 'default', 'shop', 'order', 'running', 6, 'server', $1, now(), now())`, events)
	testdb.Exec(t, pool, `
		INSERT INTO events (run_id, project, seq, type, correlation_id, spec_version, created_at, data, payload)
		SELECT 'wrun_1', 'default', n, 'step_created', 's' || n, 6, now(), '{}', convert_to($2, 'UTF8')
		FROM generate_series(1, $1::int) n`, events, payload)
}

// TestPageOfLongLogReadsAPage: a page in the middle of a long log reads the events of the page, though most runs have
// few and plans are made for these.
func TestPageOfLongLogReadsAPage(t *testing.T) {
	t.Parallel()
	const events, limit = 5000, 50
	dsn := testdb.Indexed(t)
	t.Run("read", func(t *testing.T) { // a subtest, so that its sessions end before the indexes are looked at
		pool := testdb.Connect(t, dsn)
		plantLog(t, pool, events, "payload")
		l := New(pool, pg.NewLocalHub(), time.Now)
		ctx := WithMemory(t.Context(), func(context.Context, int64) error { return nil })
		check := func(what string, more bool, err error, first, last int64, n int) {
			if err != nil || !more || n != limit || max(first-last, last-first) != limit-1 {
				t.Errorf("%s: got %d events from %d to %d, more: %t, error %v", what, n, first, last, more, err)
			}
		}
		for _, descending := range []bool{false, true} {
			p := pg.Page{Limit: limit, Descending: descending, Cursor: EventCursorAt(2000)}
			rows, err := l.Rows(ctx, entities.DefaultProject, "wrun_1", p, WithPayloads)
			check("rows", rows.More, err, rows.Rows[0].Seq, rows.Last(), len(rows.Rows))
			prefix, err := l.Prefix(ctx, "wrun_1", events-1, p)
			check("prefix", prefix.More, err, prefix.Events[0].Seq, prefix.Events[len(prefix.Events)-1].Seq, len(prefix.Events))
			p.Cursor = "2000"
			list, err := l.RunEvents(ctx, entities.DefaultProject, "wrun_1", EventQuery{}, p, WithPayloads)
			check("list", list.More, err, list.Entries[0].Seq, list.Entries[len(list.Entries)-1].Seq, len(list.Entries))
		}
		within, err := l.EventsWithin(ctx, "wrun_1", 2000, limit, MaxPageBytes)
		check("within", within.More, err, within.Events[0].Seq, within.Events[len(within.Events)-1].Seq, len(within.Events))
	})
	const most = 7 * 2 * (limit + 1)
	if n := testdb.Read(t, dsn)["events_pkey"]; n > most {
		t.Errorf("read %d entries of the index of events, want at most %d", n, most)
	}
}

// TestPayloadsBeyondTheFreeMemoryAreReadAgain: a page whose payloads need memory has them all, also when only the event
// after the page makes them too large together.
func TestPayloadsBeyondTheFreeMemoryAreReadAgain(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	const size = freeBytes * 2 / 5
	plantLog(t, pool, 4, strings.Repeat("x", size))
	l := New(pool, pg.NewLocalHub(), time.Now)
	for limit, least := range map[int]int64{1: 0, 2: freeBytes, 3: 3 * size} {
		var taken int64
		ctx := WithMemory(t.Context(), func(_ context.Context, bytes int64) error {
			taken += bytes
			return nil
		})
		list, err := l.RunEvents(ctx, entities.DefaultProject, "wrun_1", EventQuery{}, pg.Page{Limit: limit}, WithPayloads)
		if err != nil || len(list.Entries) != limit || taken < least {
			t.Fatalf("limit %d: got %d events, %d bytes taken, error %v", limit, len(list.Entries), taken, err)
		}
		for _, e := range list.Entries {
			if len(e.Payload) != size {
				t.Errorf("limit %d: event %d has a payload of %d bytes", limit, e.Seq, len(e.Payload))
			}
		}
	}
}
