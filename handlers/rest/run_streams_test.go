package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// writer starts a run with a step, whose function is being called, as the run's is. The calls are rh_step and rh_run, with
// the suffix.
func (a api) writer(t *testing.T, suffix string) entities.RunID {
	t.Helper()
	id := a.driven(t, "order")
	a.calling(t, id, "run", "rh_run"+suffix)
	if got := a.sendCall(t, id, "../commands", "rh_run"+suffix, `{"commands":[{"type":"runStep","id":"s"}]}`); got/100 != 2 {
		t.Fatalf("commands: %d", got)
	}
	a.calling(t, id, "step", "rh_step"+suffix)
	return id
}

// lines returns what a stream has.
func (a api) lines(t *testing.T, id entities.RunID, name string) string {
	t.Helper()
	page := a.get(t, "/v1/runs/"+string(id)+"/streams/"+name+"?decoded=true&limit=1000")
	var all []string
	for _, c := range page["data"].([]any) {
		v := check.Value(json.Marshal(c.(object)["value"]))(t)
		all = append(all, string(v))
	}
	return strings.Join(all, " ") + fmt.Sprint(" closed:", page["closed"])
}

// TestFunctionsWriteStreams: a step and the function of its run write to one stream, each chunk once, however often it is
// sent. Another attempt writes its own chunks, and nobody does whose call is over.
func TestFunctionsWriteStreams(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id, other := a.writer(t, ""), a.writer(t, "_other")
	for _, tt := range []struct {
		invocation, body string
		want             int
		lines            string
	}{
		{"rh_step", `{"stream":"a b","chunks":["x", {"n": [1, 2]}]}`, 204, `"x" {"n":[1,2]}`},
		{"rh_step", `{"stream":"a b","chunks":["x", {"n": [1, 2]}, null]}`, 204, `"x" {"n":[1,2]} null`},
		{"rh_run", `{"stream":"a b","chunks":["body"]}`, 204, `"x" {"n":[1,2]} null "body"`},
		{"rh_run", `{"stream":"a b","from":1,"chunks":["body"],"step":"inline","attempt":1}`, 204, `"x" {"n":[1,2]} null "body" "body"`},
		{"rh_run", `{"stream":"a b","from":1,"chunks":["body"],"step":"inline","attempt":1}`, 204, `"x" {"n":[1,2]} null "body" "body"`},
		{"rh_run", `{"stream":"a b","chunks":[2],"step":"inline","attempt":2}`, 204, `"x" {"n":[1,2]} null "body" "body" 2`},
		{"rh_step", `{"stream":"a b","chunks":[3],"step":"inline"}`, 400, ""},
		{"rh_other", `{"stream":"a b","chunks":[3]}`, 409, ""},
		{"rh_step", `{"stream":"a b"}`, 400, ""},
		{"rh_step", `{"stream":"a b","chunks":[1e400]}`, 400, ""},
		{"rh_step", `{"stream":"a b","chunks":[` + strings.Repeat(`"`+strings.Repeat("x", 200_000)+`",`, 6) + `1]}`, 400, ""},
	} {
		check.Equal(t, fmt.Sprintf("%s with %.80s", tt.invocation, tt.body), a.sendCall(t, id, "stream", tt.invocation, tt.body), tt.want)
		if got := a.lines(t, id, "a%20b"); tt.lines != "" && got != tt.lines+" closed:false" {
			t.Errorf("after %s with %s: got %s", tt.invocation, tt.body, got)
		}
	}
	a.calling(t, id, "step", "rh_again") // another attempt
	for invocation, want := range map[string]int{"rh_step": 409, "rh_again": 204} {
		check.Equal(t, invocation, a.sendCall(t, id, "stream", invocation, `{"stream":"again","chunks":["`+invocation+`"]}`), want)
	}
	check.Equal(t, "the stream", a.lines(t, id, "again"), `"rh_again" closed:false`)
	// The other run has a stream of that name, too, in which calls of this run do not write.
	for invocation, want := range map[string]int{"rh_run": 409, "rh_run_other": 204} {
		check.Equal(t, fmt.Sprintf("%s in the other run", invocation), a.sendCall(t, other, "stream", invocation, `{"stream":"again","chunks":["`+invocation+`"]}`), want)
	}
	check.Equal(t, "the other run", a.lines(t, other, "again"), `"rh_run_other" closed:false`)
}

// TestStreamsOfARunEndWithIt: they are listed by their names, followed before they begin, and closed by the end of the
// run. No write comes later.
func TestStreamsOfARunEndWithIt(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	id := a.writer(t, "")
	url := server.URL + "/v1/runs/" + string(id) + "/streams/"
	a.wantRejected(t, http.MethodGet, "/v1/runs/"+string(id)+"/streams/late/tail", "", http.StatusNotFound, "stream_not_found")
	never, late := tail(t, t.Context(), url+"never/tail?wait=true"), tail(t, t.Context(), url+"late/tail?wait=true")
	send := func(body string, want int) {
		t.Helper()
		check.Equal(t, body, a.sendCall(t, id, "stream", "rh_step", body), want)
	}
	send(`{"stream":"late","chunks":["one"]}`, 204)
	first := make([]byte, len("\"one\"\n"))
	if _, err := io.ReadFull(late.Body, first); err != nil || string(first) != "\"one\"\n" {
		t.Errorf("got %q, %v", first, err)
	}
	send(`{"stream":"done","chunks":[1],"close":true}`, 204)
	send(`{"stream":"done","chunks":[1],"close":true}`, 204)
	send(`{"stream":"done","from":1,"chunks":[2]}`, 409)
	for n := range 5 { // they write nothing
		body := fmt.Sprintf(`{"stream":"done","close":true,"step":"inline%d","attempt":1}`, n)
		check.Equal(t, body, a.sendCall(t, id, "stream", "rh_run", body), 204)
	}
	check.Equal(t, "writers that are remembered", a.count(t, "stream_writers"), 2)
	closed := map[string]bool{}
	for _, s := range a.get(t, "/v1/runs/"+string(id)+"/streams")["data"].([]any) {
		closed[s.(object)["name"].(string)] = s.(object)["closedAt"] != nil
	}
	if len(closed) != 2 || closed["late"] || !closed["done"] {
		t.Errorf("got streams %v", closed)
	}
	if got, _ := a.do(t, http.MethodPost, "/v1/runs/"+string(id)+"/cancel", `{}`); got != 200 {
		t.Fatalf("cancel: %d", got)
	}
	send(`{"stream":"late","from":1,"chunks":["two"]}`, 410)
	for name, r := range map[string]*http.Response{"never": never, "late": late} {
		if rest, err := io.ReadAll(r.Body); err != nil || len(rest) > 0 {
			t.Errorf("stream %s ended with %q, %v", name, rest, err)
		}
	}
	check.Equal(t, "the stream", a.lines(t, id, "late"), `"one" closed:true`)
}

// TestRunsHaveFewStreams, and what would be more is refused.
func TestRunsHaveFewStreams(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.writer(t, "")
	for n := range 17 {
		want := http.StatusNoContent
		if n == 16 {
			want = http.StatusConflict
		}
		check.Equal(t, fmt.Sprintf("stream %d", n), a.sendCall(t, id, "stream", "rh_run", fmt.Sprintf(`{"stream":"s%d","close":true}`, n)), want)
	}
	check.Equal(t, "streams of the run", len(a.get(t, "/v1/runs/"+string(id)+"/streams")["data"].([]any)), 16)
}

// TestRacingWritesAreWrittenOnce: eight connections send the same chunks of two writers, while the attempt of one of them
// loses its lease. All that was accepted is there once, and in the order of its writer.
func TestRacingWritesAreWrittenOnce(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.writer(t, "")
	const chunks = 20
	var racing sync.WaitGroup
	var mu sync.Mutex
	accepted := map[string]int{} // up to which index
	for range 8 {
		for _, lease := range []string{"rh_step", "rh_run"} {
			racing.Go(func() {
				for n := range chunks {
					got := a.sendCall(t, id, "stream", lease, fmt.Sprintf(`{"stream":"s","from":%d,"chunks":["%s %d"]}`, n, lease, n))
					switch {
					case got == http.StatusNoContent:
						mu.Lock()
						accepted[lease] = max(accepted[lease], n+1)
						mu.Unlock()
					case got != http.StatusConflict || lease == "rh_run":
						t.Errorf("%s: got %d", lease, got)
					}
				}
			})
		}
	}
	racing.Go(func() { a.calling(t, id, "step", "rh_again") })
	racing.Wait()
	before := a.lines(t, id, "s")
	next := map[string]int{}
	for _, line := range strings.Split(strings.TrimSuffix(before, " closed:false"), `" "`) {
		lease, n, _ := strings.Cut(strings.Trim(line, `"`), " ")
		if n != fmt.Sprint(next[lease]) {
			t.Fatalf("chunk %s of %s comes after %d others", n, lease, next[lease])
		}
		next[lease]++
	}
	if next["rh_run"] != chunks || next["rh_step"] != accepted["rh_step"] {
		t.Errorf("the stream has %v, and accepted were %v", next, accepted)
	}
}

// TestAWriteKeepsItsCall: while what an attempt writes is being written, no other attempt gets the lease, so nothing of
// the first comes after the second has begun.
func TestAWriteKeepsItsCall(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.writer(t, "")
	a.sendCall(t, id, "stream", "rh_step", `{"stream":"s","chunks":[1]}`)
	tx := check.Value(a.pool.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	check.Value(tx.Exec(t.Context(), `SELECT FROM streams WHERE run_id = $1 FOR UPDATE`, id))(t)
	written, changed := make(chan int, 1), make(chan error, 1)
	go func() { written <- a.sendCall(t, id, "stream", "rh_step", `{"stream":"s","from":1,"chunks":[2]}`) }()
	a.untilWaiting(t, 1, changed)
	go func() {
		_, err := a.pool.Exec(t.Context(), `UPDATE messages SET lease = 'rh_again' WHERE lease = 'rh_step'`)
		changed <- err
	}()
	a.untilWaiting(t, 2, changed)
	check.NoError(t, tx.Rollback(t.Context()))
	if got, err := <-written, <-changed; got != http.StatusNoContent || err != nil {
		t.Errorf("the write got %d, and the change of the lease %v", got, err)
	}
}

// untilWaiting waits until so many transactions of the database wait for locks. The lease must not change before.
func (a api) untilWaiting(t *testing.T, want int, changed <-chan error) {
	t.Helper()
	again, end := time.NewTicker(10*time.Millisecond), time.After(time.Minute)
	defer again.Stop()
	for waiting := 0; waiting < want; {
		select {
		case <-again.C:
		case err := <-changed:
			t.Fatalf("the lease has changed during a write (%v)", err)
		case <-end:
			t.Fatalf("%d transactions wait, want %d", waiting, want)
		}
		err := a.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
}
