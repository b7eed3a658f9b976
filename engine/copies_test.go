package engine

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/queue"
)

// TestOneCopyOfACallWrites: of many copies of a call that write what they know at the same position, one does, through
// whatever server. The others are refused as long as they do not know what it has written. It may repeat its request,
// events of others are in nobody's way, and the answer of a copy that was overtaken is refused as a whole.
func TestOneCopyOfACallWrites(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	home := idleServer(t, dsn)
	b := cachingServerOn(t, gate.Open(t, dsn, home.pool, nil), home)
	m := b.prepareInvoked(t, home)
	send := func(s *server, after int64, commands ...string) ([]eventlog.Result, error) {
		return s.runs.Exchange(t.Context(), callOf(m.run.ID, m.invocation.Lease), after,
			[]byte(`{"commands":[`+strings.Join(commands, ",")+`]}`))
	}
	record := func(id string, output int) string {
		return fmt.Sprintf(`{"type":"recordStep","id":%q,"output":%d}`, id, output)
	}
	const copies = 8
	var all sync.WaitGroup
	var errs [copies]error
	for i := range copies {
		all.Go(func() {
			s := []*server{b.server, home}[i%2]
			_, errs[i] = send(s, m.run.LastSeq, record("x", i), record(fmt.Sprint("after-", i), i))
		})
	}
	all.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner < 0:
			winner = i
		case !errors.Is(err, message.ErrStale) || !errors.Is(err, queue.ErrOvertaken):
			t.Errorf("copy %d: got error %v beside the winner %d", i, err, winner)
		}
	}
	last := func() (n int64) {
		home.Scan(t, `SELECT last_seq FROM runs WHERE id = $1`, []any{m.run.ID}, &n)
		return n
	}
	position := last()
	if want := m.run.LastSeq + 3 + 4; winner < 0 || position != want {
		t.Fatalf("copy %d has won, and the log has %d events, want %d", winner, position, want)
	}

	for _, s := range []*server{b.server, home} {
		if _, err := send(s, m.run.LastSeq, record("x", winner), record(fmt.Sprint("after-", winner), winner)); err != nil {
			t.Errorf("the same request again: %v", err)
		}
		if _, err := send(s, m.run.LastSeq); err != nil {
			t.Errorf("a request without commands: %v", err)
		}
	}
	if err := completeStep("a", "1")(t.Context(), b, m); err != nil { // an event of others
		t.Fatal(err)
	}
	for _, s := range []*server{b.server, home} {
		if _, err := send(s, position-1, record("late", 1)); !errors.Is(err, message.ErrStale) {
			t.Errorf("a copy that does not know the last command: got error %v", err)
		}
	}
	if _, err := send(b.server, position, record("y", 1)); err != nil {
		t.Errorf("the winner: %v", err)
	}
	before := last()
	for _, command := range []string{`{"type":"complete"}`, `{"type":"runStep","id":"z"}`, ``} {
		answer := fmt.Appendf(nil, `{"commands":[%s],"seen":%d}`, command, position)
		if err := b.runs.answer(t.Context(), m.invocation, m.run, answer); !errors.Is(err, queue.ErrOvertaken) {
			t.Errorf("answer %s: got error %v", answer, err)
		}
	}
	if n := last(); n != before {
		t.Errorf("refused answers have written %d events", n-before)
	}
	answer := fmt.Appendf(nil, `{"commands":[{"type":"complete"}],"seen":%d}`, before)
	if err := b.runs.answer(t.Context(), m.invocation, m.run, answer); err != nil {
		t.Errorf("the answer of the winner: %v", err)
	}
}

// TestAnOvertakenCopyIsNoFailure: if the copy that was overtaken answers first, with commands or by saying so, the run
// is called again with what the other one has written. No failure is counted.
func TestAnOvertakenCopyIsNoFailure(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(c *functionCall){
		"commands": func(c *functionCall) {
			_, _ = fmt.Fprintf(c.w, `{"commands":[{"type":"fail","error":{"message":"late"}}],"seen":%d}`, len(c.Events))
		},
		"stale": func(c *functionCall) {
			c.w.WriteHeader(http.StatusConflict)
			_, _ = c.w.Write([]byte(`{"error":{"code":"stale_invocation","message":"the call is over"}}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newServer(t, testdb.New(t))
			var attempts sync.Map
			d.register(t, deployment, serve(t, func(c *functionCall) {
				attempts.Store(c.Attempt, true)
				if c.has("step_completed", "x") {
					c.reply(object{"type": "complete", "output": 1})
					return
				}
				if _, err := d.runs.Exchange(c.r.Context(), callOf(c.Run.ID, c.Invocation), int64(len(c.Events)),
					[]byte(`{"commands":[{"type":"recordStep","id":"x","output":1}]}`)); err != nil {
					t.Error(err)
				}
				answer(c)
			}).URL)
			d.worker(t, d.works)
			id := d.startRun(t, `null`)
			d.wantEnd(t, id, entities.RunCompleted, `1`)
			if _, counted := attempts.Load(2); counted {
				t.Error("the refused answer counts as a failure")
			}
		})
	}
}
