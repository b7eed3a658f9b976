package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	functions "github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/inbox"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// answers appends what the commands of a run's function become, in one transaction.
func (a api) answers(t *testing.T, id entities.RunID, answer ...string) error {
	t.Helper()
	plan, err := functions.Planner{Run: entities.Run{ID: id, DeploymentID: "orders", WorkflowName: "order"}, Now: a.log.Now()}.
		Plan([]byte(`{"commands":[` + strings.Join(answer, ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.log.AppendAll(t.Context(), entities.DefaultProject, id, plan.Requests, eventlog.AppendOptions{})
	return err
}

func replyTo(message, rest string) string {
	return `{"type":"reply","inbox":"notes","message":"` + message + `",` + rest + `}`
}

// asks sends a message, waits for the answer, and returns the status and what came.
func (a api) asks(t *testing.T, id entities.RunID, message string, seconds int) (int, object) {
	t.Helper()
	return a.do(t, http.MethodPost, "/v1/runs/"+string(id)+"/inbox/notes", `{"id":"`+message+`","payload":"`+message+`"}`,
		"Prefer", fmt.Sprintf("wait=%d", seconds))
}

// waitingFor returns once so many requests wait for the run's answer to the message.
func (a api) waitingFor(t *testing.T, id entities.RunID, message string, n int) {
	t.Helper()
	topic := "reply " + string(entities.DefaultProject) + " " + string(id) + " " + string(inbox.ReplyID(inbox.ResumeID("notes", message)))
	deadline, poll := time.After(30*time.Second), time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for a.hub.Subscribers(topic) != n {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("%d requests wait for the answer to %s, want %d", a.hub.Subscribers(topic), message, n)
		}
	}
}

// TestUpdatesAreAnsweredOnce: many requests at the same time get an answer each, all with one ID the same, and so does
// who asks again later, also after the end of the run. A second answer changes nothing.
func TestUpdatesAreAnsweredOnce(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	a.log.EndPoll = time.Hour
	id := a.startedID(t, `{"workflow":"order","inbox":["notes"]}`, http.StatusCreated)
	const messages, senders = 6, 4
	var mu sync.Mutex
	answers := map[string]map[string]int{}
	var all sync.WaitGroup
	for n := range messages * senders {
		message := fmt.Sprintf("m%d", n%messages)
		all.Go(func() {
			status, got := a.asks(t, id, message, 60)
			text, _ := json.Marshal(got["answer"])
			mu.Lock()
			defer mu.Unlock()
			if answers[message] == nil {
				answers[message] = map[string]int{}
			}
			answers[message][fmt.Sprint(status, " ", string(text))]++
		})
	}
	want := map[string]map[string]int{}
	for n := range messages {
		message := fmt.Sprintf("m%d", n)
		a.waitingFor(t, id, message, senders)
		var racers sync.WaitGroup
		for racer := range 2 {
			racers.Go(func() {
				if err := a.answers(t, id, replyTo(message, fmt.Sprintf(`"output":%d`, racer))); err != nil {
					t.Error(err)
				}
			})
		}
		racers.Wait()
		_, got := a.asks(t, id, message, 1)
		text, _ := json.Marshal(got["answer"])
		want[message] = map[string]int{"200 " + string(text): senders}
		check.Equal(t, fmt.Sprintf("the place of the answer to %s", message), any(got["answer"].(object)["seq"]), any(float64(2+messages+2*n+1)))
	}
	all.Wait()
	check.Equal(t, "answers", answers, want)
	a.event(t, id, entities.EventRunCompleted)
	if status, got := a.asks(t, id, "m0", 1); status != http.StatusOK || got["repeated"] != true || got["answer"] == nil {
		t.Errorf("after the end: got %d %v", status, got)
	}
}

// TestUpdateIsRefusedByTheRun: the error of the run is the answer, and no status.
func TestUpdateIsRefusedByTheRun(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	id := a.startedID(t, `{"workflow":"order","inbox":["notes"]}`, http.StatusCreated)
	check.NoError(t, a.answers(t, id, replyTo("m", `"error":{"message":"too little","code":"funds","details":[1]}`)))
	_, got := a.asks(t, id, "m", 1)
	same(t, "the answer", `{"runId":"`+string(id)+`","seq":3,"error":{"message":"too little","code":"funds","details":[1]}}`,
		got["answer"].(object))
}

// TestUpdateThatIsNotAnsweredInTime is in the log, and can be asked for again.
func TestUpdateThatIsNotAnsweredInTime(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	id := a.startedID(t, `{"workflow":"order","inbox":["notes"]}`, http.StatusCreated)
	at := "/v1/runs/" + string(id) + "/inbox/notes"
	if status, got := a.asks(t, id, "m", 1); status != http.StatusOK || got["answer"] != nil {
		t.Errorf("got %d %v", status, got)
	}
	same(t, "who does not wait", `{"seq":3,"repeated":true}`, a.post(t, at, `{"id":"m","payload":"m"}`, http.StatusOK))
	a.send(t, http.MethodPost, at, `{"id":"m","payload":"other"}`, http.StatusConflict, "Prefer", "wait=1")
	a.send(t, http.MethodPost, at, `{"payload":1}`, http.StatusBadRequest, "Prefer", "wait=1")
	a.wantLog(t, id, "run_created", "hook_created inbox:notes", `hook_received inbox:notes m "m"`)
}

// TestUpdateOfARunThatEnds is unanswered, unless the answer comes with the end.
func TestUpdateOfARunThatEnds(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	a.log.EndPoll = time.Hour
	for _, answered := range []bool{true, false} {
		id := a.startedID(t, `{"workflow":"order","inbox":["notes"]}`, http.StatusCreated)
		came := make(chan string, 1)
		go func() {
			status, got := a.asks(t, id, "m", 60)
			failure, _ := got["error"].(object)
			came <- fmt.Sprint(status, " ", failure["code"], " ", got["answer"] != nil)
		}()
		a.waitingFor(t, id, "m", 1)
		commands := []string{`{"type":"complete"}`}
		want := "410 unanswered false"
		if answered {
			commands, want = []string{replyTo("m", `"output":1`), commands[0]}, "200 <nil> true"
		}
		check.NoError(t, a.answers(t, id, commands...))
		check.Equal(t, "the reply", <-came, want)
		a.wantRejected(t, http.MethodPost, "/v1/runs/"+string(id)+"/inbox/notes", `{"id":"late","payload":1}`, http.StatusGone, "run_ended")
	}
}

// TestUpdatesFollowARunThatContinues: those that were not read move, who waits does so for the last run, and a run may
// answer what an earlier one has read. What was answered does not move, though the function does not say that it has
// read it, or answers as it continues.
func TestUpdatesFollowARunThatContinues(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	a.log.EndPoll = time.Hour
	first := a.startedID(t, `{"workflow":"order","inbox":["notes"]}`, http.StatusCreated)
	came := map[string]chan string{}
	for _, message := range []string{"read", "answered", "last", "unread", "never"} {
		came[message] = make(chan string, 1)
		a.post(t, "/v1/runs/"+string(first)+"/inbox/notes", `{"id":"`+message+`","payload":"`+message+`"}`, http.StatusOK)
		go func() {
			status, got := a.asks(t, first, message, 60)
			answer, _ := got["answer"].(object)
			came[message] <- fmt.Sprint(status, " ", answer["runId"], " ", answer["output"])
		}()
		a.waitingFor(t, first, message, 1)
	}
	wants := func(message string, status int, id any, output any) {
		t.Helper()
		if got, want := <-came[message], fmt.Sprint(status, " ", id, " ", output); got != want {
			t.Errorf("%s: got %s, want %s", message, got, want)
		}
	}
	check.NoError(t, a.answers(t, first, replyTo("answered", `"output":1`)))
	wants("answered", http.StatusOK, first, 1)
	check.NoError(t, a.answers(t, first, replyTo("last", `"output":2`), `{"type":"continueAs","read":{"notes":3}}`))
	wants("last", http.StatusOK, first, 2)
	second := entities.RunID(a.get(t, "/v1/runs/"+string(first))["continuedAs"].(string))
	a.wantLog(t, second, "run_created", "hook_created inbox:notes",
		`hook_received inbox:notes unread "unread"`, `hook_received inbox:notes never "never"`)
	a.waitingFor(t, second, "read", 1)
	check.NoError(t, a.answers(t, second, replyTo("read", `"output":3`), replyTo("unread", `"output":4`)))
	wants("read", http.StatusOK, second, 3)
	wants("unread", http.StatusOK, second, 4)
	third := a.continues(t, second, 4)
	if status, got := a.asks(t, first, "unread", 1); status != http.StatusOK || got["answer"].(object)["runId"] != string(second) {
		t.Errorf("asked again: got %d %v", status, got)
	}
	a.event(t, third, entities.EventRunCompleted)
	wants("never", http.StatusGone, nil, nil)
}
