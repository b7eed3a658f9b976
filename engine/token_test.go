package engine

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// TestTokensOfCalls: the token of a call is good for its run as long as its invocation is active. It is neither logged
// nor stored, even if the call fails.
func TestTokensOfCalls(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	d, other := newServer(t, dsn), newServer(t, dsn)
	var mu sync.Mutex
	seen := map[string]string{} // the tokens by the type of the call and its attempt
	check := func(c *functionCall) error {
		call, ok, err := other.runs.VerifyCall(c.r.Context(), c.Token) // servers share the key
		if want := (token.Call{Project: project, RunID: c.Run.ID, Invocation: c.Invocation}); !ok || err != nil || call != want {
			t.Errorf("%s: got %+v, %v, error %v; want %+v", c.Type, call, ok, err, want)
		}
		return other.CheckLease(c.r.Context(), call)
	}
	d.register(t, deployment, serve(t, func(c *functionCall) {
		if err := check(c); err != nil {
			t.Errorf("%s under way: %v", c.Type, err)
		}
		mu.Lock()
		seen[c.Token] = c.Invocation
		failed := len(seen) == 1
		mu.Unlock()
		switch {
		case failed:
			c.w.WriteHeader(http.StatusInternalServerError)
		case c.Type == contract.TypeStep:
			_, _ = c.w.Write([]byte(`"done"`))
		default:
			completeWith("step_completed", "x", object{"type": "runStep", "id": "x"})(c)
		}
	}).URL)
	log := &testdb.Log{}
	d.worker(t, func(o *queue.WorkerOptions) {
		o.Handlers = d.runs.Handlers()
		o.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	id := d.startRun(t, `null`)
	d.wantEnd(t, id, entities.RunCompleted, `"done"`)
	mu.Lock()
	defer mu.Unlock()
	if len(seen) < 4 { // the failed invocation, its repetition, the step and the last invocation
		t.Fatalf("got %d tokens, want one for each call", len(seen))
	}
	for text, invocation := range seen {
		if err := d.CheckLease(t.Context(), callOf(id, invocation)); !errors.Is(err, message.ErrStale) {
			t.Errorf("after the end of the invocation: got error %v, want ErrStale", err)
		}
		if log.Contains(text) {
			t.Errorf("the log has the token %s", text)
		}
	}
	if !log.Contains("delivery failed") {
		t.Error("the log has no failed call")
	}
	d.Want(t, "rows have a token", 0, `SELECT count(*) FROM events e, messages m WHERE (e::text || m::text) LIKE '%swct_%'`)
	d.Want(t, "events have a token", 0, `SELECT count(*) FROM events e WHERE e::text || convert_from(coalesce(payload, ''), 'UTF8') LIKE '%swct_%'`)
}

// TestServersShareTheKeyOfCalls: of many servers that ask for the key at once, one creates it.
func TestServersShareTheKeyOfCalls(t *testing.T) {
	t.Parallel()
	d := newServer(t, testdb.New(t))
	const racers = 8
	keys := make([][]byte, racers)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			var err error
			if keys[i], err = admin.ServerKey(t.Context(), pg.NewPool(d.pool), "calls"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, key := range keys {
		if len(key) != 32 || !bytes.Equal(key, keys[0]) {
			t.Fatalf("got the keys %x", keys)
		}
	}
}

// TestKeyOfCallsOutlastsTheDatabase: while the database does not answer, the last key counts.
func TestKeyOfCallsOutlastsTheDatabase(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	answer, failure := []byte("first"), error(nil)
	k := callKey{now: func() time.Time { return now }}
	reads := 0
	k.read = func(ctx context.Context) ([]byte, error) {
		reads++
		return answer, failure
	}
	want := func(key string, read int) {
		t.Helper()
		got, err := k.get(t.Context())
		if err != nil || string(got) != key || reads != read {
			t.Errorf("got %q after %d reads, error %v; want %q after %d", got, reads, err, key, read)
		}
	}
	failure = errors.New("down")
	if _, err := k.get(t.Context()); !errors.Is(err, failure) {
		t.Errorf("without a key: got error %v", err)
	}
	failure = nil
	want("first", 2)
	want("first", 2)
	now, failure = now.Add(callKeyTime), errors.New("down")
	want("first", 3)
	now, answer, failure = now.Add(callKeyTime), []byte("second"), nil
	want("second", 4)
}

// TestTokensMoveWithTheirProject: the token of a call that another cell has made counts for the projects that came from
// there, and for no other one.
func TestTokensMoveWithTheirProject(t *testing.T) {
	t.Parallel()
	d := newServer(t, testdb.New(t))
	key := token.Key(bytes.Repeat([]byte("k"), 32))
	testdb.Exec(t, d.pool, `INSERT INTO arrivals (project, cell, calls, departed_at) VALUES ('moved', 'eu1', $1, now())`, []byte(key))
	testdb.Exec(t, d.pool, `INSERT INTO projects (name) VALUES ('left'), ('stays')`)
	testdb.Exec(t, d.pool, `INSERT INTO departures (project, here, cell, target, moved_at) VALUES ('left', 'us1', 'eu2', '', now())`)
	runs := d.runs.InCell("us1")
	for name, tt := range map[string]struct {
		cell    entities.Cell
		project entities.Project
		key     token.Key
		valid   bool
	}{
		"moved":         {"eu1", "moved", key, true},
		"other project": {"eu1", "stays", key, false},
		"other cell":    {"eu3", "moved", key, false},
		"other key":     {"eu1", "moved", token.Key("forged"), false},
	} {
		call := token.Callback(tt.project, "wrun_1", "a")
		got, ok, err := runs.VerifyCall(t.Context(), tt.key.SignCall(tt.cell, call, time.Now().Add(time.Hour)))
		if ok != tt.valid || ok && got != call || !ok && !errors.Is(err, entities.ErrWrongCell) {
			t.Errorf("%s: got %+v, %v, error %v", name, got, ok, err)
		}
	}
	var wrong *entities.WrongCellError
	if err := runs.CheckHere(t.Context(), "left"); !errors.As(err, &wrong) || wrong.In != "eu2" || wrong.Here != "us1" {
		t.Errorf("a project that has left: got %v", err)
	}
	if err := runs.CheckHere(t.Context(), "stays"); err != nil {
		t.Errorf("a project that stays: got %v", err)
	}
}
