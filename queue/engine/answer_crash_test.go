package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/queue"
)

// TestAnswerSurvivesACrashAtAnyStatement breaks the writing of an answer off at each statement, by killing the server's
// process before it, and by cutting the server off when it has been executed, the commit too. Then all that the
// function asked for is there or nothing: events, children, and the work that follows. Whoever goes on carries the
// same answer out, and it is there once.
func TestAnswerSurvivesACrashAtAnyStatement(t *testing.T) {
	t.Parallel()
	const ask = `{"type":"setAttributes","attributes":{"a":"b"}},{"type":"recordStep","id":"r","output":1},` +
		`{"type":"runStep","id":"s"},{"type":"wait","id":"w","for":"1h"},{"type":"openHook","id":"h","token":"T"},` +
		`{"type":"startChild","id":"c","workflow":"child"}`
	tests := map[string]struct {
		answer string
		// events is how many the answer makes, and work how many pieces there are then, of all runs.
		events, work int
		stale        bool // the answer cannot be carried out twice
	}{
		"a bit of all": {`{"commands":[` + ask + `]}`, 7, 3, false},                    // the run's, the step's, the child's
		"the end":      {`{"commands":[` + ask + `,{"type":"complete"}]}`, 8, 2, true}, // the child's, and to end it
		"nothing new":  {`{"commands":[{"type":"openHook","id":"old","token":"U"}]}`, 0, 0, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.New(t)
			home := idleServer(t, dsn)
			session := gate.Open(t, dsn, home.pool, nil)
			broken := serverOn(t, session.Pool)
			// attempt has an answer carried out in a new world, with a crash at statement n.
			attempt := func(t *testing.T, n int, crash gate.Crash) (d queue.Delivery, statements []string, err error) {
				t.Helper()
				home.exec(t, `DELETE FROM messages`)
				home.exec(t, `DELETE FROM runs`)
				d, run := home.startInvocation(t)
				statements = session.Run(t, n, crash, func() { err = broken.runs.answer(t.Context(), d, run, []byte(tt.answer)) })
				return d, statements, err
			}
			_, statements, err := attempt(t, -1, gate.None)
			if err != nil {
				t.Fatal(err)
			}
			commit := -1
			for n, sql := range statements {
				if sql == "COMMIT" {
					commit = n
				}
			}
			if commit < 3 {
				t.Fatalf("there is no transaction in %q", statements)
			}
			for n, sql := range statements {
				for _, how := range []gate.Crash{gate.Terminated, gate.AnswerLost} {
					what := fmt.Sprintf("%s at %d, %.40s", how, n, strings.TrimSpace(sql))
					d, _, err := attempt(t, n, how)
					if err == nil {
						t.Errorf("%s: no error was returned", what)
					}
					committed := n == commit && how == gate.AnswerLost
					before := home.countNewEvents(t, d.RunID)
					if want := map[bool]int{true: tt.events}[committed]; before != want {
						t.Errorf("%s: %d events are there, want %d", what, before, want)
					}
					if err := home.answerAgain(t, d, tt.answer); (err != nil) != (committed && tt.stale) && !queue.IsOver(err) {
						t.Errorf("%s: the repetition: %v", what, err)
					}
					if got := home.countNewEvents(t, d.RunID); got != tt.events {
						t.Errorf("%s: then %d events are there, want %d", what, got, tt.events)
					}
					if got := home.replica.count(t, `SELECT count(*) FROM messages WHERE work <> ''`); got != tt.work {
						t.Errorf("%s: %d pieces of work are there, want %d", what, got, tt.work)
					}
				}
			}
			t.Logf("%d statements", len(statements))
		})
	}
}

// invoked is a run whose invocation is under way. It has a hook already.
func (d *server) startInvocation(t *testing.T) (queue.Delivery, entities.Run) {
	t.Helper()
	id := d.startRun(t, `null`)
	work := d.claim(t, entities.WorkRun, "")
	run, _, err := d.runs.recordStart(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.runs.Command(t.Context(), project, id, work.Lease,
		[]byte(`{"commands":[{"type":"openHook","id":"old","token":"U"}]}`)); err != nil {
		t.Fatal(err)
	}
	return work, run
}

// wrote is how many events a run has behind those that it was invoked with.
func (d *server) countNewEvents(t *testing.T, id entities.RunID) int {
	t.Helper()
	return d.replica.count(t, `SELECT count(*) - 3 FROM events WHERE run_id = $1`, id)
}

// answers carries an answer out.
func (d *server) answerAgain(t *testing.T, work queue.Delivery, answer string) error {
	t.Helper()
	run, err := store.RunByID(t.Context(), d.pool, project, work.RunID)
	if err != nil {
		t.Fatal(err)
	}
	return d.runs.answer(t.Context(), work, run, []byte(answer))
}
