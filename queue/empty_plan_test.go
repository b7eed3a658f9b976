package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/contract"
)

// TestAQueueThatWasEmptyIsReadByItsIndex: a statement that is planned once, when the queue is empty and has just been
// vacuumed, must not read the whole table for as long as the plan lasts, nor all that is under way.
func TestAQueueThatWasEmptyIsReadByItsIndex(t *testing.T) {
	t.Parallel()
	pool, err := migrations.Pool(t.Context(), testdb.New(t), migrations.DefaultSchema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, sql := range []string{`VACUUM ANALYZE messages`, `SET plan_cache_mode = force_generic_plan`} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for condition, arguments := range map[string]int{ofLease: 1, ofMessage: 3, ofWork: 4} {
		text := strings.Repeat("text, ", arguments-1) + "text"
		none := strings.Repeat("'', ", arguments-1) + "''"
		for what, sql := range map[string]string{
			"delete": `DELETE FROM messages WHERE ` + condition,
			"lock":   `SELECT EXISTS (SELECT FROM messages WHERE ` + condition + ` AND due_at > clock_timestamp() FOR UPDATE)`,
		} {
			if _, err := conn.Exec(t.Context(), `PREPARE `+what+` (`+text+`) AS `+sql); err != nil {
				t.Fatal(err)
			}
			rows, err := conn.Query(t.Context(), `EXPLAIN EXECUTE `+what+` (`+none+`)`)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(plan, "\n"); !strings.Contains(text, "messages_lease_key") {
				t.Errorf("a message is not found by its lease alone: %s\n%s", sql, text)
			}
			if _, err := conn.Exec(t.Context(), `DEALLOCATE `+what); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestOneRunIsFoundAmongMany: what is asked about one run or message goes by its ID or its lease, also if it was planned
// when there were none. An index that begins with the project has all others to go through.
func TestOneRunIsFoundAmongMany(t *testing.T) {
	t.Parallel()
	dsn := testdb.Indexed(t)
	t.Run("a run and its messages", func(t *testing.T) { // whose sessions end with it
		d := quietly(t, dsn)
		w := d.newWorker(t, func(o *WorkerOptions) { o.Runs = d.runs })
		d.onRecord(t, w.pulse.id)
		d.register(t, deployment, serve(t, func(c *turn) {
			switch {
			case c.Type == contract.TypeStep:
			case !c.has("step_completed", "a"):
				c.reply(object{"type": "openHook", "id": "h", "token": "T"}, object{"type": "runStep", "id": "a"})
			default:
				c.reply(object{"type": "complete"})
			}
		}).URL)
		d.exec(t, `VACUUM ANALYZE messages`) // the queue was empty, and of the other tables nothing is known
		d.desk.Store(w.direct)
		id := d.begin(t, `null`)
		d.wantEnd(t, id, entities.RunCompleted, "null")
		cancel := eventlog.Request{RunID: id, Type: entities.EventRunCancelled, SpecVersion: entities.SpecDriven}
		if _, err := d.log.Append(t.Context(), project, cancel); err == nil {
			t.Fatal("a run was cancelled that had ended")
		}
		d.desk.Store(nil)
		sent, err := d.Send(t.Context(), message(ofRun(id)))
		if err != nil {
			t.Fatal(err)
		}
		m, err := d.Receive(t.Context(), project, topic, sent, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Acknowledge(t.Context(), project, topic, m.Lease); err != nil {
			t.Fatal(err)
		}
	})
	for _, index := range testdb.Scanned(t, dsn) {
		switch index {
		case "runs runs_created_idx", "runs runs_workflow_idx", "runs runs_ended_idx", "runs runs_key_idx",
			"messages messages_run_idx", "messages messages_under_way_idx", "messages messages_parked_idx",
			"hooks hooks_created_idx", "hooks hooks_signal_idx", "events events_feed_idx":
			t.Errorf("%s was used", index)
		}
	}
}
