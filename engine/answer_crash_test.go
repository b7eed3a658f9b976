package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/queue"
)

// TestAnswerSurvivesACrashAtAnyStatement interrupts the transaction of an answer at each statement: it kills the
// server's session before the statement, or cuts the connection after it, the commit included. Afterwards all results
// of the answer are there or none: events, children and work. Another server then applies the same answer, and every
// result is there once.
func TestAnswerSurvivesACrashAtAnyStatement(t *testing.T) {
	t.Parallel()
	const ask = `{"type":"setAttributes","attributes":{"a":"b"}},{"type":"recordStep","id":"r","output":1},` +
		`{"type":"runStep","id":"s"},{"type":"wait","id":"w","for":"1h"},{"type":"openHook","id":"h","token":"T"},` +
		`{"type":"startChild","id":"c","workflow":"child"}`
	tests := map[string]struct {
		answer string
		// events is the number of events that the answer writes, and work the number of work messages of all runs after it.
		events, work int
		stale        bool // the answer is refused the second time
	}{
		"all commands": {`{"commands":[` + ask + `]}`, 7, 3, false},                    // of the run, the step and the child
		"complete":     {`{"commands":[` + ask + `,{"type":"complete"}]}`, 8, 2, true}, // of the child, and to cancel it
		"attempts of the function": {
			`{"commands":[{"type":"runStep","id":"f","firstAttempt":{"error":{"message":"m"}}},` +
				`{"type":"recordStep","id":"g","error":{"message":"m"},"retryAfter":"1h"}]}`, 6, 2, false,
		},
		"cancellations": {`{"commands":[{"type":"runStep","id":"s"},{"type":"cancelStep","id":"s"},` +
			`{"type":"wait","id":"w","for":"1h"},{"type":"cancelWait","id":"w"},{"type":"startChild","id":"c","workflow":"child"},` +
			`{"type":"cancelStep","id":"c","grace":"1m"}]}`, 5, 3, false}, // of the child, to cancel it, and of the step
		"reply": {`{"commands":[{"type":"openHook","id":"h","token":"T"},{"type":"recordStep","id":"r","output":1},` +
			`{"type":"reply","inbox":"notes","message":"m","output":1}],"await":{"any":[]}}`, 5, 0, false},
		"await": {`{"commands":[` + ask + `],"await":{"any":["wait:w"],"all":[["step:s","step:r"]]}}`, 7, 3, false},
		"await, no new event": {
			`{"commands":[{"type":"openHook","id":"old","token":"U"}],"await":{"any":[]}}`, 0, 0, true,
		},
		"no new event": {`{"commands":[{"type":"openHook","id":"old","token":"U"}]}`, 0, 0, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.New(t)
			home := idleServer(t, dsn)
			session := gate.Open(t, dsn, home.pool, nil)
			// attempt applies an answer to a new run, with a crash at statement n, by a server that has read nothing before: it
			// executes the same statements each time.
			attempt := func(t *testing.T, n int, crash gate.Crash) (d queue.Delivery, statements []string, err error) {
				t.Helper()
				home.Exec(t, `DELETE FROM messages`)
				home.Exec(t, `DELETE FROM runs`)
				broken := serverOn(t, session.Pool)
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
				t.Fatalf("no transaction in %q", statements)
			}
			for n, sql := range statements {
				for _, how := range gate.Crashes(sql) {
					what := fmt.Sprintf("%s at %d, %.40s", how, n, strings.TrimSpace(sql))
					d, _, err := attempt(t, n, how)
					if err == nil {
						t.Errorf("%s: got no error", what)
					}
					committed := n == commit && how == gate.AnswerLost
					before := home.countNewEvents(t, d.RunID)
					if want := map[bool]int{true: tt.events}[committed]; before != want {
						t.Errorf("%s: got %d events, want %d", what, before, want)
					}
					if err := home.answerAgain(t, d, tt.answer); (err != nil) != (committed && tt.stale) && !queue.IsOver(err) {
						t.Errorf("%s: repeating the answer: %v", what, err)
					}
					if got := home.countNewEvents(t, d.RunID); got != tt.events {
						t.Errorf("%s: got %d events after the repetition, want %d", what, got, tt.events)
					}
					if got := home.Count(t, `SELECT count(*) FROM messages WHERE work <> ''`); got != tt.work {
						t.Errorf("%s: got %d work messages, want %d", what, got, tt.work)
					}
				}
			}
			t.Logf("%d statements", len(statements))
		})
	}
}

// startInvocation starts a run with a hook, and returns its invocation, which is under way.
func (d *server) startInvocation(t *testing.T) (queue.Delivery, entities.Run) {
	t.Helper()
	id := d.startRun(t, `null`)
	work := d.claim(t, message.WorkRun, "")
	run, _, err := d.runs.recordStart(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.runs.Command(t.Context(), callOf(id, work.Lease),
		[]byte(`{"commands":[{"type":"openHook","id":"old","token":"U"}]}`)); err != nil {
		t.Fatal(err)
	}
	return work, run
}

// countNewEvents returns the number of events that a run got since startInvocation.
func (d *server) countNewEvents(t *testing.T, id entities.RunID) int {
	t.Helper()
	return d.Count(t, `SELECT count(*) - 3 FROM events WHERE run_id = $1`, id)
}

// answerAgain applies an answer.
func (d *server) answerAgain(t *testing.T, work queue.Delivery, answer string) error {
	t.Helper()
	run, err := store.RunByID(t.Context(), d.pool, project, work.RunID)
	if err != nil {
		t.Fatal(err)
	}
	return d.runs.answer(t.Context(), work, run, []byte(answer))
}
