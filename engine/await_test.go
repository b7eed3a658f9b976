package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// awaitSet is the JSON of what an answer awaits.
type awaitSet struct {
	Any []string   `json:"any"`
	All [][]string `json:"all"`
}

// TestAwaitedStepsCostOneInvocation runs 50 steps at once on two servers, after three that the function records itself:
// the function is called to begin, and once all steps have ended.
func TestAwaitedStepsCostOneInvocation(t *testing.T) {
	t.Parallel()
	var commands []object
	for _, id := range []string{"r1", "r2", "r3"} {
		commands = append(commands, object{"type": "recordStep", "id": id})
	}
	var all []string
	for i := range 50 {
		commands = append(commands, object{"type": "runStep", "id": fmt.Sprint(i)})
		all = append(all, fmt.Sprint("step:", i))
	}
	var calls atomic.Int32
	f := serve(t, func(c *functionCall) {
		switch {
		case c.Type == contract.TypeStep:
		case calls.Add(1) == 1:
			_ = json.NewEncoder(c.w).Encode(object{"commands": commands, "await": awaitSet{All: [][]string{all}}})
		default:
			for i := range 50 {
				if !c.has("step_completed", fmt.Sprint(i)) {
					t.Errorf("invoked before step %d has ended", i)
				}
			}
			c.reply(object{"type": "complete"})
		}
	})
	d := startServer(t, f)
	other := &server{replica: newReplica(t, d.pool.Config().ConnString())}
	other.log = eventlog.New(other.pool, other.hub, other.Queue, time.Now)
	other.runs = New(other.Queue, other.log)
	other.worker(t, other.works)
	d.wantEnd(t, d.startRun(t, `null`), entities.RunCompleted, `null`)
	if n := calls.Load(); n != 2 {
		t.Errorf("got %d invocations, want 2", n)
	}
}

// awaiting starts a run on the server whose first answer has the commands and awaits something.
func (d *server) awaiting(t *testing.T, commands, await string) (entities.RunID, error) {
	t.Helper()
	id := d.startRun(t, `null`)
	work := d.claim(t, message.WorkRun, "")
	run, _, err := d.runs.recordStart(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	return id, d.runs.answer(t.Context(), work, run, []byte(`{"commands":[`+commands+`],"await":`+await+`}`))
}

// TestAwaitingNothingIsRefused: nothing but a hook would have the run invoked, and it has none.
func TestAwaitingNothingIsRefused(t *testing.T) {
	t.Parallel()
	for commands, refused := range map[string]bool{
		``:                                    true,
		`{"type":"runStep","id":"s"}`:         true,
		`{"type":"wait","id":"w","for":"1h"}`: true,
		`{"type":"openHook","id":"h"}`:        false,
	} {
		d := idleServer(t, testdb.New(t))
		if _, err := d.awaiting(t, commands, `{"any":[]}`); errors.Is(err, ErrNothingLeft) != refused {
			t.Errorf("%s: got error %v; refused: %v", commands, err, refused)
		}
	}
}

// TestAwaitingTheKnownIsNoBusyLoop: the function knew that what it awaits had ended.
func TestAwaitingTheKnownIsNoBusyLoop(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	if _, err := d.awaiting(t, ``, `{"any":["step:unknown"]}`); err != nil {
		t.Fatal(err)
	}
	var after time.Duration
	d.Scan(t, `SELECT due_at - r.updated_at FROM messages m JOIN runs r ON r.id = m.run_id WHERE m.work = 'run'`, nil, &after)
	if after < idlePauseAtLeast {
		t.Errorf("the run is invoked after %s, want %s", after, idlePauseAtLeast)
	}
}

// idlePauseAtLeast is the least time between an answer and a call that says nothing new.
const idlePauseAtLeast = time.Second

// TestSweeperWakesRunsWhoseAwaitCannotHold damages runs that await something.
func TestSweeperWakesRunsWhoseAwaitCannotHold(t *testing.T) {
	t.Parallel()
	const step, hook = `{"type":"runStep","id":"s"}`, `{"type":"openHook","id":"h"}`
	const wait = `{"type":"wait","id":"w","for":"1h"}`
	for name, tt := range map[string]struct {
		commands, await, damage string
		reason                  string // empty if the run is not stranded
	}{
		"step":                       {step, `{"any":["step:s"]}`, ``, ``},
		"step, and another wait":     {step + "," + wait, `{"all":[["step:s"]]}`, ``, ``},
		"wait":                       {wait, `{"any":["wait:w"]}`, ``, ``},
		"only hooks":                 {hook + "," + step, `{"any":[]}`, ``, ``},
		"step that has ended":        {step, `{"any":["step:s"]}`, `UPDATE steps SET status = 'failed', completed_at = now()`, "it awaits step s"},
		"step that has ended, hook":  {hook + "," + step, `{"all":[["step:s"]]}`, `UPDATE steps SET status = 'failed', completed_at = now()`, "it awaits step s"},
		"step that is gone":          {step, `{"all":[["step:s"]]}`, `DELETE FROM steps`, "it awaits step s"},
		"wait without a message":     {wait, `{"any":["wait:w"]}`, `DELETE FROM messages`, "no message invokes it at"},
		"step without its work":      {step, `{"any":["step:s"]}`, `DELETE FROM messages`, "step s is pending"},
		"hook that is gone":          {hook + "," + step, `{"any":[]}`, `DELETE FROM hooks`, "it waits for nothing"},
		"older version has appended": {hook + "," + wait, `{"any":[]}`, `UPDATE runs SET last_seq = last_seq + 1`, "wait w is over"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := idleServer(t, testdb.New(t))
			id, err := d.awaiting(t, tt.commands, tt.await)
			if err != nil {
				t.Fatal(err)
			}
			if tt.damage != "" {
				d.Exec(t, tt.damage)
			}
			woken := d.sweep(t, func(s *cluster.Sweeper) { s.Quiet = 0 })
			if tt.reason == "" && len(woken) > 0 || tt.reason != "" && (len(woken) != 1 || !strings.HasPrefix(woken[0].Reason, tt.reason)) {
				t.Fatalf("woken: %+v, want %q", woken, tt.reason)
			}
			d.Want(t, "invocations", len(woken), `SELECT count(*) FROM messages WHERE run_id = $1 AND work = 'run' AND due_at <= now()`, id)
		})
	}
}

// TestAwaitOfAnOlderVersionIsForgotten: a server that does not know what runs await has appended to the run, and may
// have had it invoked. So all new events have the run invoked until its next answer.
func TestAwaitOfAnOlderVersionIsForgotten(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	id, err := d.awaiting(t, `{"type":"runStep","id":"a"},{"type":"runStep","id":"b"}`, `{"any":["step:a"]}`)
	if err != nil {
		t.Fatal(err)
	}
	d.Exec(t, `UPDATE runs SET await = jsonb_set(await, '{seq}', to_jsonb(last_seq - 1))`)
	d = serverOn(t, d.pool) // whose cache is empty
	if _, err := d.log.Append(t.Context(), project, eventlog.Request{
		RunID: id, Type: entities.EventStepCompleted, CorrelationID: "b", SpecVersion: entities.SpecDriven, Payload: []byte(`1`),
	}); err != nil {
		t.Fatal(err)
	}
	d.Want(t, "invocations", 1, `SELECT count(*) FROM messages WHERE work = 'run' AND due_at <= now()`)
}
