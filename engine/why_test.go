package engine

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/why"
)

func (d *server) explain(t testing.TB, id entities.RunID) why.Explanation {
	t.Helper()
	e, err := why.Of(t.Context(), d.pool, project, id)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// reason waits until the run has a reason of the kind, and returns it.
func (d *server) reason(t testing.TB, id entities.RunID, kind why.Kind) why.Reason {
	t.Helper()
	_, found := d.explainAs(t, id, kind)
	return found
}

// explainAs waits until the run has a reason of the kind, and returns that and the explanation.
func (d *server) explainAs(t testing.TB, id entities.RunID, kind why.Kind) (last why.Explanation, found why.Reason) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last explanation: %+v", last)
		}
	})
	testdb.Eventually(t, "the run has the reason "+string(kind), func() bool {
		last = d.explain(t, id)
		i := slices.IndexFunc(last.Reasons, func(r why.Reason) bool { return r.Kind == kind })
		if i >= 0 {
			found = last.Reasons[i]
		}
		return i >= 0
	})
	d.wantListed(t, id)
	return last, found
}

// wantListed fails the test unless a list says of the run what its explanation says first, and the list by need has it;
// that of a stranded run only when the sweeper has found it.
func (d *server) wantListed(t testing.TB, id entities.RunID) {
	t.Helper()
	type first struct {
		verdict why.Verdict
		kind    why.Kind
		summary string
	}
	firstOf := func(e why.Explanation) first {
		if len(e.Reasons) == 0 {
			return first{verdict: e.Verdict}
		}
		return first{e.Verdict, e.Reasons[0].Kind, e.Reasons[0].Summary()}
	}
	var listed, explained first
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the list says %+v, the explanation %+v", listed, explained)
		}
	})
	testdb.Eventually(t, "the list says what the explanation says", func() bool {
		list, err := why.OfMany(t.Context(), d.pool, project, []entities.RunID{"wrun_none", id})
		if err != nil || len(list) != 1 {
			t.Fatalf("got %+v, error %v", list, err)
		}
		listed, explained = firstOf(list[id]), firstOf(d.explain(t, id))
		return listed == explained && (d.isListed(t, id) == list[id].Need() || listed.verdict == why.VerdictStranded)
	})
}

// isListed returns the need by which lists have the run; empty if none has it.
func (d *server) isListed(t testing.TB, id entities.RunID) (as why.Need) {
	t.Helper()
	for _, need := range why.Needs() {
		list, _, err := why.ListNeeding(t.Context(), d.pool, project, need, store.RunFilter{}, pg.Page{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(list, func(e why.Explanation) bool { return e.Run.ID == id }) {
			as += need
		}
	}
	return as
}

// TestStepInItsPauseIsTriedByHand: an attempt that becomes due too early, as by a registration of its deployment, waits
// for its time. One that somebody asks for does not.
func TestStepInItsPauseIsTriedByHand(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	d := startServer(t, serve(t, func(c *functionCall) {
		switch {
		case c.Type == contract.TypeStep && calls.Add(1) == 1:
			c.replyAs(http.StatusServiceUnavailable, "")
		case c.Type == contract.TypeStep:
			c.replyAs(http.StatusOK, `{"output":"paid"}`)
		case c.has("step_completed", "x"):
			c.reply(object{"type": "complete", "output": nil})
		default:
			c.reply(object{"type": "runStep", "id": "x", "retry": object{"backoff": "5h", "maxBackoff": "5h"}})
		}
	}))
	id := d.startRun(t, `null`)
	r := d.reason(t, id, why.StepBackoff)
	remedied(t, r, why.RetryMessage)
	d.Exec(t, `UPDATE messages SET due_at = now() WHERE id = $1`, r.MessageID)
	testdb.Eventually(t, "the message waits again", func() bool {
		return d.Count(t, `SELECT count(*) FROM messages WHERE work = 'step' AND lease = '' AND due_at > now() + interval '1 h'`) == 1
	})
	if n := d.countEvents(t, id, "step_started x"); n != 1 {
		t.Errorf("got %d attempts, want 1", n)
	}
	if _, err := d.Retry(t.Context(), project, r.MessageID); err != nil {
		t.Fatal(err)
	}
	if status, _ := d.waitForEnd(t, id); status != entities.RunCompleted {
		t.Errorf("got %s", status)
	}
	if n := d.countEvents(t, id, "step_started x"); n != 2 {
		t.Errorf("got %d attempts, want 2", n)
	}
}

// TestQueuedWorkIsExplained on a server without workers.
func TestQueuedWorkIsExplained(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	d.register(t, deployment, "http://127.0.0.1:1")
	id := d.startRun(t, `null`)
	r := d.reason(t, id, why.Queued)
	if r.Backlog != 1 || r.Since == nil || r.DeploymentID != deployment {
		t.Errorf("got %+v", r)
	}
	work := d.claim(t, message.WorkRun, "")
	run, _, err := d.runs.recordStart(t.Context(), work)
	if err == nil {
		err = d.runs.answer(t.Context(), work, run, []byte(`{"commands":[{"type":"runStep","id":"x"}]}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	if r := d.reason(t, id, why.StepQueued); r.StepID != "x" || r.Attempt != 1 || r.MaxAttempts != 5 {
		t.Errorf("got %+v", r)
	}
	if e := d.explain(t, id); e.Verdict != why.VerdictWorking || len(e.Reasons) != 1 {
		t.Errorf("got %+v", e)
	}
}

// TestExplanationsStayInTheirProject, and know only runs that exist.
func TestExplanationsStayInTheirProject(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	id := d.startRun(t, `null`)
	for _, of := range []struct {
		project entities.Project
		id      entities.RunID
	}{{"other", id}, {project, "wrun_none"}} {
		_, err := why.Of(t.Context(), d.pool, of.project, of.id)
		testdb.WantError(t, "explain", err, entities.ErrRunNotFound)
	}
}

// TestStrandedIsWhatTheSweeperFinds lets random things happen to runs, some of whose messages get lost, and asks why just
// before the sweeper comes.
func TestStrandedIsWhatTheSweeperFinds(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	var stranded, others atomic.Int32
	rapid.Check(t, func(rt *rapid.T) {
		d.Exec(t, `DELETE FROM messages`)
		d.Exec(t, `DELETE FROM runs`)
		id := d.startRun(t, `null`, func(r *eventlog.Request) {
			if rapid.Bool().Draw(rt, "deadline") {
				at := time.Now().Add(time.Hour)
				r.Data.Deadline = &at
			}
		})
		for i := range rapid.IntRange(0, 3).Draw(rt, "answers") {
			d.answerRandomly(t, rt, id, i)
		}
		d.loseRandomly(t, rt, id)
		d.Exec(t, `UPDATE runs SET updated_at = now() - interval '1 minute' WHERE completed_at IS NULL`)
		d.Exec(t, `UPDATE steps SET updated_at = now() - interval '1 minute', retry_after = retry_after - interval '1 minute'`)
		e := d.explain(t, id)
		found := d.sweep(t)
		isFound := slices.ContainsFunc(found, func(s cluster.Stranded) bool { return s.ID == id })
		if (e.Verdict == why.VerdictStranded) != isFound {
			rt.Fatalf("the sweeper found %+v, but the verdict is %s for %+v", found, e.Verdict, e.Reasons)
		}
		if isFound {
			stranded.Add(1)
			if now := d.explain(t, id); now.Verdict == why.VerdictStranded {
				rt.Fatalf("the sweeper woke the run, but it is still stranded: %+v", now.Reasons)
			}
		} else {
			others.Add(1)
		}
	})
	if !testing.Short() && (stranded.Load() < 10 || others.Load() < 10) { // rapid then checks a fifth
		t.Errorf("%d runs were stranded, %d others were not", stranded.Load(), others.Load())
	}
}

// answerRandomly answers the next invocation of a run, if there is one.
func (d *server) answerRandomly(t *testing.T, rt *rapid.T, id entities.RunID, n int) {
	t.Helper()
	if d.Count(t, `SELECT count(*) FROM messages WHERE run_id = $1 AND work = 'run'`, id) == 0 {
		return
	}
	work := d.claim(t, message.WorkRun, "")
	run, _, err := d.runs.recordStart(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	list := rapid.SliceOfN(rapid.SampledFrom([]string{
		`{"type":"runStep","id":"s%d"}`, `{"type":"wait","id":"w%d","for":"1h"}`, `{"type":"openHook","id":"h%d"}`,
		`{"type":"startChild","id":"c%d","workflow":"kid"}`, `{"type":"recordStep","id":"r%d"}`,
		`{"type":"recordStep","id":"f%d","error":{"message":"m"},"retryAfter":"1h"}`,
	}), 1, 3).Draw(rt, "commands")
	slices.Sort(list)
	list = slices.Compact(list)
	for i := range list {
		list[i] = fmt.Sprintf(list[i], n)
	}
	err = d.runs.answer(t.Context(), work, run, []byte(`{"commands":[`+strings.Join(list, ",")+`]}`))
	if err != nil && !strings.Contains(err.Error(), "wait for nothing") && !strings.Contains(err.Error(), "deployment not found") {
		t.Fatal(err)
	}
}

// loseRandomly loses messages, or changes their state.
func (d *server) loseRandomly(t *testing.T, rt *rapid.T, id entities.RunID) {
	t.Helper()
	rows, err := d.pool.Query(t.Context(), `SELECT id FROM messages WHERE run_id = $1 ORDER BY id`, id)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		if change := rapid.SampledFrom([]string{
			``, ``, `DELETE FROM messages WHERE id = $1`, `UPDATE messages SET lease = '', due_at = now() + interval '1 h' WHERE id = $1`,
			`UPDATE messages SET lease = '', parked_at = now() WHERE id = $1`, `UPDATE messages SET lease = '', last_error = 'x' WHERE id = $1`,
		}).Draw(rt, "change"); change != "" {
			d.Exec(t, change, id)
		}
	}
}

// TestExplanationsOfLargeRunsReadIndexes: a run with 100,000 events, 10,000 open steps and 150 lookbacks is explained from indexes, of
// which that of events is hardly read, also by plans that were made before there were many.
func TestExplanationsOfLargeRunsReadIndexes(t *testing.T) {
	t.Parallel()
	dsn := testdb.Indexed(t)
	t.Run("explain", func(t *testing.T) { // a subtest, so that its sessions end before the indexes are looked at
		d := serverOn(t, idleReplica(t, dsn, func(c *pgxpool.Config) { c.MaxConns = 1 }).pool)
		id := d.startRun(t, `null`)
		if e := d.explain(t, id); e.Reasons[0].Kind != why.DeploymentMissing {
			t.Errorf("got %+v", e.Reasons)
		}
		fillLarge(t, d, id)
		d.register(t, deployment, "http://127.0.0.1:1")
		e := d.explain(t, id)
		if e.Open.Steps != largeOpen || len(e.Reasons) != why.MaxParts+1 || e.Reasons[0].Kind != why.StepQueued {
			t.Errorf("got %d open steps and %d reasons, the first is %+v", e.Open.Steps, len(e.Reasons), e.Reasons[0])
		}
		if e := d.explain(t, "wrun_1"); e.Verdict != why.VerdictStranded {
			t.Errorf("got %+v", e)
		}
	})
	if n := testdb.Read(t, dsn)["events_pkey"]; n > 1000 {
		t.Errorf("read %d entries of the index of events", n)
	}
}

// largeOpen is the number of open steps of a large run.
const largeOpen = 10_000

// fillLarge gives a run a log of 100,000 events and 10,000 open steps, besides 2,000 other runs.
func fillLarge(t *testing.T, d *server, id entities.RunID) {
	t.Helper()
	const events, others = 100_000, 2_000
	for _, sql := range []string{
		`INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq, driver, created_at, updated_at)
			SELECT 'wrun_' || n, 'default', 'dpl_test', 'order', 'running', 4, 1, 0, CASE n % 2 WHEN 0 THEN 'server' ELSE '' END, now(), now() - interval '1 minute'
			FROM generate_series(1, $2::integer) n WHERE $1::text <> '' AND $3::integer > 0`,
		`INSERT INTO events (project, run_id, seq, type, correlation_id, spec_version, created_at, data)
			SELECT 'default', $1, seq, CASE WHEN seq % 2 = 0 THEN 'step_created' ELSE 'step_completed' END, 'step_' || seq / 2, 3, now(),
				'{"step": {"deploymentId": "dpl_test", "maxAttempts": 5}}'
			FROM generate_series(2, $3::integer) seq WHERE $2::integer > 0`,
		`INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at, completed_at)
			SELECT $1, 'step_' || n, 's', CASE WHEN n <= 10000 THEN 'running' ELSE 'completed' END, 1, 3, 2 * n, now(), now(),
				CASE WHEN n <= 10000 THEN NULL ELSE now() END
			FROM generate_series(1, $3::integer / 2) n WHERE $2::integer > 0`,
		`INSERT INTO messages (id, project, topic, deployment_id, run_id, work, subject, content_type, body, expires_at, due_at)
			SELECT 'msg_' || n, 'default', 's', 'dpl_test', $1, 'step', 'step_' || n, '', '', now(), now() + interval '1 d'
			FROM generate_series(1, 10000) n WHERE $2::integer > 0 AND $3::integer > 0`,
		`INSERT INTO messages (id, project, topic, deployment_id, run_id, work, subject, content_type, body, expires_at, due_at)
			SELECT 'msg_back_' || n, 'default', 's', 'dpl_test', $1, 'lookback', 'h_' || n, '', '', now(), now() + interval '1 d'
			FROM generate_series(1, 150) n WHERE $2::integer > 0 AND $3::integer > 0`,
		`INSERT INTO messages (id, project, topic, deployment_id, run_id, content_type, body, expires_at, due_at)
			SELECT 'msg_of_' || n, 'default', 's', 'dpl_test', 'wrun_' || n, '', '', now(), now() + interval '1 d'
			FROM generate_series(1, $2::integer) n WHERE $1::text <> '' AND $3::integer > 0`,
	} {
		d.Exec(t, sql, id, others, events)
	}
	d.Exec(t, `UPDATE runs SET last_seq = $2, updated_at = now() - interval '1 minute' WHERE id = $1`, id, events)
}
