package rest_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/pg"
)

// log describes the log of a run: the type of each event with its correlation ID, message ID and payload, if it has
// them.
func (a api) logOf(t *testing.T, id entities.RunID) []string {
	t.Helper()
	page := check.Value(a.log.Events(t.Context(), entities.DefaultProject, id, pg.Page{Limit: 100}, read.WithPayloads))(t)
	var lines []string
	for _, e := range page.Events {
		line := fmt.Sprintf("%s %s %s %s", e.Type, e.CorrelationID, e.Data.MessageID, e.Payload)
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func (a api) wantLog(t *testing.T, id entities.RunID, want ...string) {
	t.Helper()
	check.Equal(t, "log", a.logOf(t, id), want)
}

// startedID starts a run and returns its ID.
func (a api) startedID(t *testing.T, body string, status int) entities.RunID {
	t.Helper()
	id, _ := a.post(t, "/v1/runs", body, status)["id"].(string)
	return entities.RunID(id)
}

const startWithInbox = `{"workflow":"order","idempotencyKey":"i","inbox":["notes","a:b"],"send":[
	{"inbox":"notes","id":"m1","payload":1},{"inbox":"a:b","id":"m1","payload":2},{"inbox":"notes","payload":null}]}`

// TestInboxesAreOpenedWithTheRun, and the first messages are sent, in one transaction and once, however often the start
// is repeated. They do not start a run early.
func TestInboxesAreOpenedWithTheRun(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	id := a.startedID(t, startWithInbox, http.StatusCreated)
	want := []string{
		"run_created", "hook_created inbox:notes", "hook_created inbox:a:b", "hook_received inbox:notes m1 1",
		"hook_received inbox:a:b m1 2", "hook_received inbox:notes null",
	}
	a.wantLog(t, id, want...)
	check.Equal(t, "the repetition started", a.startedID(t, startWithInbox, http.StatusOK), id)
	a.wantLog(t, id, want...)
	check.Equal(t, "invocations of the run", a.work(t, id)["run"], 1)
	delayed := a.startedID(t, `{"workflow":"order","delay":"1h","inbox":["notes"],"send":[{"inbox":"notes","payload":1}]}`,
		http.StatusCreated)
	a.post(t, "/v1/runs/"+string(delayed)+"/inbox/notes", `{"payload":2}`, http.StatusOK)
	var early int
	check.NoError(t, a.pool.QueryRow(t.Context(), `
		SELECT count(*) FROM messages WHERE run_id = $1 AND work <> '' AND due_at < now() + interval '50 minutes'`, delayed).Scan(&early))
	if early != 0 {
		t.Error("a message starts the run before its time")
	}
}

// TestFlowsHaveNoInboxes: a start that gives one to a flow is refused, for its log would have what no flow has.
func TestFlowsHaveNoInboxes(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.post(t, "/v1/flows", `{"document":"flow: order\nsteps: {rest: {wait: 1h}}"}`, http.StatusCreated)
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"order","inbox":["notes"]}`, http.StatusBadRequest, "invalid_request")
	check.Equal(t, "runs", a.count(t, "runs"), 0)
}

// TestStartWithInboxLeavesNoTraceIfItFails: neither of its runs, hooks and events.
func TestStartWithInboxLeavesNoTraceIfItFails(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	a.exec(t, `ALTER TABLE messages ADD CONSTRAINT none CHECK (work <> 'run') NOT VALID`)
	a.wantRejected(t, http.MethodPost, "/v1/runs", startWithInbox, http.StatusInternalServerError, "internal")
	for _, table := range []string{"runs", "events", "hooks", "messages"} {
		check.Equal(t, table, a.count(t, table), 0)
	}
}

// TestAMessageIDCountsOnce in its inbox, whoever sends it: at the start, and many at the same time.
func TestAMessageIDCountsOnce(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	id := a.startedID(t, startWithInbox, http.StatusCreated)
	to := "/v1/runs/" + string(id) + "/inbox/"
	same(t, "a message of the start", `{"seq":4,"repeated":true}`, a.post(t, to+"notes", `{"id":"m1","payload":1}`, http.StatusOK))
	a.wantRejected(t, http.MethodPost, to+"notes", `{"id":"m1","payload":2}`, http.StatusConflict, "conflict")
	const senders = 8
	var mu sync.Mutex
	var first int
	seqs := map[float64]bool{}
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			got := a.post(t, to+"a:b", `{"id":"raced","payload":3}`, http.StatusOK)
			mu.Lock()
			defer mu.Unlock()
			seqs[got["seq"].(float64)] = true
			if got["repeated"] == false {
				first++
			}
		})
	}
	all.Wait()
	if first != 1 || !seqs[7] || len(seqs) != 1 {
		t.Errorf("%d messages were new, at %v; want one at 7", first, seqs)
	}
	same(t, "the same ID to another inbox", `{"seq":8,"repeated":false}`,
		a.post(t, to+"notes", `{"id":"raced","payload":4}`, http.StatusOK))
	if got := a.logOf(t, id)[6:]; !slices.Equal(got, []string{"hook_received inbox:a:b raced 3", "hook_received inbox:notes raced 4"}) {
		t.Errorf("the log ends with %q", got)
	}
}

// TestJoiningSendsToTheRunUnderWay: all messages or none, and each ID once.
func TestJoiningSendsToTheRunUnderWay(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	body := func(send string) string {
		return `{"workflow":"order","key":"k","onConflict":"join","inbox":["notes","new"],"send":[` + send + `]}`
	}
	id := a.startedID(t, `{"workflow":"order","key":"k","inbox":["notes"]}`, http.StatusCreated)
	a.event(t, id, entities.EventRunStarted)
	const two = `{"inbox":"notes","id":"m1","payload":1},{"inbox":"notes","id":"m2","payload":2}`
	for range 2 {
		if joined := a.startedID(t, body(two), http.StatusOK); joined != id {
			t.Fatalf("joined %s, want %s", joined, id)
		}
	}
	opened := []string{"run_created", "hook_created inbox:notes", "run_started"}
	want := append(opened, "hook_received inbox:notes m1 1", "hook_received inbox:notes m2 2")
	a.wantLog(t, id, want...)
	a.wantRejected(t, http.MethodPost, "/v1/runs", body(`{"inbox":"notes","payload":3},{"inbox":"new","payload":4}`),
		http.StatusNotFound, "inbox_not_found")
	a.wantLog(t, id, want...)

	a.event(t, id, entities.EventRunCompleted)
	next := a.startedID(t, body(two), http.StatusCreated)
	if next == id {
		t.Fatal("joined a run that has ended")
	}
	a.wantLog(t, next, "run_created", "hook_created inbox:notes", "hook_created inbox:new",
		"hook_received inbox:notes m1 1", "hook_received inbox:notes m2 2")
}

// TestARepeatedJoinSendsOnce also after the end of the run that it joined, if it has an idempotency key.
func TestARepeatedJoinSendsOnce(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	join := func(key string, status int) entities.RunID {
		t.Helper()
		return a.startedID(t, `{"workflow":"order","key":"k","onConflict":"join","idempotencyKey":"`+key+`","inbox":["notes"],
			"send":[{"inbox":"notes","payload":1},{"inbox":"notes","id":"m","payload":2}]}`, status)
	}
	id := a.startedID(t, `{"workflow":"order","key":"k","inbox":["notes"]}`, http.StatusCreated)
	a.event(t, id, entities.EventRunStarted)
	want := []string{
		"run_created", "hook_created inbox:notes", "run_started",
		"hook_received inbox:notes 1", "hook_received inbox:notes m 2",
	}
	for range 2 {
		if joined := join("a", http.StatusOK); joined != id {
			t.Fatalf("joined %s, want %s", joined, id)
		}
	}
	a.wantLog(t, id, want...)
	a.event(t, id, entities.EventRunCompleted)
	check.Equal(t, "the repetition started", join("a", http.StatusOK), id)
	next := join("b", http.StatusCreated)
	if again := join("b", http.StatusOK); next == id || again != next {
		t.Errorf("another request started %s and then %s", next, again)
	}
	check.Equal(t, "the repetition joined", join("a", http.StatusOK), id)
	a.wantLog(t, next, "run_created", "hook_created inbox:notes",
		"hook_received inbox:notes 1", "hook_received inbox:notes m 2")
}

// TestSignalWithStartRacesTheEnd: every message of many concurrent starts with one key is in the log of a run, though
// the runs end meanwhile.
func TestSignalWithStartRacesTheEnd(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	const senders = 6
	var all sync.WaitGroup
	for n := range senders {
		all.Go(func() {
			body := fmt.Sprintf(`{"workflow":"order","key":"k","onConflict":"join","inbox":["notes"],
				"send":[{"inbox":"notes","id":"m%d","payload":%d}]}`, n, n)
			status, answer := a.do(t, http.MethodPost, "/v1/runs", body)
			if status != http.StatusOK && status != http.StatusCreated {
				t.Errorf("got %d %v", status, answer)
				return
			}
			id, _ := answer["id"].(string)
			_, _ = a.log.Append(t.Context(), entities.DefaultProject, eventlog.Request{ // another sender may have ended it
				RunID: entities.RunID(id), Type: entities.EventRunCompleted, SpecVersion: entities.SpecDriven,
			})
		})
	}
	all.Wait()
	var sent int
	check.NoError(t, a.pool.QueryRow(t.Context(), `
		SELECT count(*) FROM events WHERE type = 'hook_received' AND data ->> 'messageId' IS NOT NULL`).Scan(&sent))
	check.Equal(t, "messages are in logs", sent, senders)
}

func TestInboxErrors(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	id := a.startedID(t, startWithInbox, http.StatusCreated)
	to := "/v1/runs/" + string(id) + "/inbox/"
	a.wantRejected(t, http.MethodPost, to+"letters", `{"payload":1}`, http.StatusNotFound, "inbox_not_found")
	a.wantRejected(t, http.MethodPost, to+"a%20b", `{"payload":1}`, http.StatusBadRequest, "invalid_request")
	a.wantRejected(t, http.MethodPost, to+"notes", `{"id":"x"}`, http.StatusBadRequest, "invalid_request")
	a.wantRejected(t, http.MethodPost, to+"notes", `{"id":"`+strings.Repeat("x", 257)+`","payload":1}`, http.StatusBadRequest, "invalid_request")
	a.wantRejected(t, http.MethodPost, "/v1/runs/wrun_none/inbox/notes", `{"payload":1}`, http.StatusNotFound, "run_not_found")
	sdk := a.sdkRun(t, "w")
	a.wantRejected(t, http.MethodPost, "/v1/runs/"+string(sdk)+"/inbox/notes", `{"payload":1}`, http.StatusNotFound, "inbox_not_found")
	for _, body := range []string{
		`{"workflow":"order","inbox":["a b"]}`, `{"workflow":"order","inbox":[""]}`, `{"workflow":"order","inbox":["a","a"]}`,
		`{"workflow":"order","send":[{"inbox":"a","payload":1}]}`,
		`{"workflow":"order","inbox":["a"],"send":[{"inbox":"a"}]}`,
		`{"workflow":"order","inbox":["` + strings.Join(strings.Split(strings.Repeat("x", 17), ""), `","`) + `"]}`,
	} {
		a.wantRejected(t, http.MethodPost, "/v1/runs", body, http.StatusBadRequest, "invalid_request")
	}
	a.event(t, id, entities.EventHookDisposed, func(r *eventlog.Request) { r.CorrelationID = "inbox:a:b" })
	a.wantRejected(t, http.MethodPost, to+"a:b", `{"payload":1}`, http.StatusNotFound, "inbox_not_found")
	a.event(t, id, entities.EventRunCompleted)
	a.wantRejected(t, http.MethodPost, to+"notes", `{"payload":1}`, http.StatusGone, "run_ended")
}

// TestRerunOpensTheInboxesAgain, without their messages.
func TestRerunOpensTheInboxesAgain(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	id := a.startedID(t, startWithInbox, http.StatusCreated)
	again, _ := a.post(t, "/v1/runs/"+string(id)+"/rerun", `{}`, http.StatusCreated)["id"].(string)
	a.wantLog(t, entities.RunID(again), "run_created", "hook_created inbox:notes", "hook_created inbox:a:b")
	one, err := store.HookByID(t.Context(), a.pool, entities.DefaultProject, "inbox:notes", a.log.Now())
	if err != nil || len(one.Token) < 32 || one.IsWebhook {
		t.Errorf("the hook of the inbox is %+v, error %v; want a random token, and no webhook", one, err)
	}
}

// TestStoreIsReadableFromOutside, while the run is under way and afterwards.
func TestStoreIsReadableFromOutside(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	id := a.driven(t, "order")
	at := "/v1/runs/" + string(id) + "/store"
	same(t, "an empty store", `{"data":{}}`, a.get(t, at))
	a.event(t, id, entities.EventStoreSet, func(r *eventlog.Request) {
		r.CorrelationID, r.Payload = "s", []byte(`{"balance":{"cents": 75},"a/b ?":"\u0000","gone":1}`)
	})
	a.event(t, id, entities.EventStoreSet, func(r *eventlog.Request) {
		r.CorrelationID, r.Payload = "t", []byte(`{"gone":null}`)
	})
	for range 2 {
		same(t, "the store", `{"data":{"balance":{"value":{"cents":75},"seq":2},"a/b ?":{"value":"\u0000","seq":2}}}`, a.get(t, at))
		same(t, "a value", `{"value":{"cents":75},"seq":2}`, a.get(t, at+"/balance"))
		same(t, "a key with special characters", `{"value":"\u0000","seq":2}`, a.get(t, at+"/a%2Fb%20%3F"))
		a.wantRejected(t, http.MethodGet, at+"/gone", "", http.StatusNotFound, "store_key_not_found")
		a.send(t, http.MethodPost, "/v1/runs/"+string(id)+"/cancel", "", http.StatusOK)
	}
	a.wantRejected(t, http.MethodGet, "/v1/runs/wrun_none/store", "", http.StatusNotFound, "run_not_found")
	a.wantRejected(t, http.MethodGet, at+"/%00", "", http.StatusBadRequest, "invalid_request")
}
