package model_test

import (
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/why"
)

// checkWhy asks why each run of a sequence is not done, and then lets the sweeper look: the verdict is that a run is
// stranded if and only if the sweeper finds it. A run that has not ended has at least one reason. The sequence is over
// afterwards: its runs are deleted.
func (m *machine) checkWhy(rt *rapid.T) {
	m.exec(rt, `UPDATE sweeper SET due_at = now() + interval '1 day'`)
	m.exec(rt, `UPDATE runs SET updated_at = now() - interval '1 minute' WHERE id = ANY($1)`, m.runs)
	for _, run := range m.runs {
		m.owe(rt, run)
	}
	m.exec(rt, `UPDATE steps SET updated_at = now() - interval '1 minute' WHERE run_id = ANY($1)`, m.runs)
	var stranded []entities.RunID
	for _, run := range m.runs {
		history := m.w.Runs[run]
		if history == nil {
			continue
		}
		e, err := why.Of(m.ctx, m.s.pool, entities.DefaultProject, entities.RunID(run))
		if err != nil {
			m.fail(rt, "a run is not explained", err.Error())
		}
		if ended := e.Verdict == why.VerdictEnded; ended != (history.Run.Ended > 0) || !ended && len(e.Reasons) == 0 {
			m.fail(rt, "a run has another verdict than the model's", run+" "+string(e.Verdict))
		}
		m.s.explained[e.Verdict]++
		if e.Verdict == why.VerdictStranded {
			stranded = append(stranded, e.Run.ID)
		}
	}
	slices.Sort(stranded)
	m.exec(rt, `UPDATE sweeper SET due_at = now(), cursor = ''`)
	sweeper := cluster.NewSweeper(m.s.pool, m.s.queue, m.s.logger)
	sweeper.Interval = 24 * time.Hour
	if _, err := sweeper.Sweep(m.ctx); err != nil {
		m.fail(rt, "the sweep failed", err.Error())
	}
	m.exec(rt, `SELECT FROM sweeper FOR UPDATE`) // if the worker's sweeper came first, its pass is over now
	rows, err := m.s.pool.Query(m.ctx, `SELECT run_id FROM run_wakes WHERE stranded_at IS NOT NULL AND run_id = ANY($1) ORDER BY 1`, m.runs)
	if err != nil {
		m.fail(rt, "reading what the sweeper found failed", err.Error())
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[entities.RunID])
	if err != nil {
		m.fail(rt, "reading what the sweeper found failed", err.Error())
	}
	if diff := cmp.Diff(stranded, found, cmpopts.EquateEmpty()); diff != "" {
		m.fail(rt, "the sweeper finds other runs than those whose verdict is that they are stranded (-)", diff)
	}
	m.exec(rt, `DELETE FROM messages WHERE run_id = ANY($1) AND work <> ''`, m.runs)
	m.exec(rt, `DELETE FROM messages WHERE run_id = ANY($1) AND work = ''`, m.runs)
	m.exec(rt, `DELETE FROM runs WHERE id = ANY($1)`, m.runs)
}

// owe gives a run, perhaps, a message that is due later, parked, or that failed.
func (m *machine) owe(rt *rapid.T, run string) {
	if state := one(rt, "message", "", "", "parked_at", "last_error", "due_at"); state != "" {
		m.exec(rt, `
			INSERT INTO messages (id, project, topic, deployment_id, run_id, content_type, body, expires_at, due_at, parked_at, last_error)
			SELECT 'msg_of_' || id, project, '__wkf_workflow_wf', deployment_id, id, '', '', now() + interval '1 day',
				now() + interval '15 minutes', CASE WHEN $2 = 'parked_at' THEN now() END, CASE WHEN $2 = 'last_error' THEN 'oops' ELSE '' END
			FROM runs WHERE id = $1`, run, state)
	}
}

func (m *machine) exec(rt *rapid.T, sql string, args ...any) {
	if _, err := m.s.pool.Exec(m.ctx, sql, args...); err != nil {
		m.fail(rt, "preparing the sweep failed", err.Error())
	}
}
