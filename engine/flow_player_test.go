package engine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/flow/flowgen"
	"github.com/stepwell-dev/stepwell/flow/replay"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// player decides what comes from outside, and when.
type player struct {
	*stage

	project entities.Project
	id      entities.RunID
	program *flow.Program
	draw    flowgen.Draw
	trail   []string // what has happened
	open    []string // the calls that wait for their answers
	ended   bool
	run     entities.Run
	events  []entities.Event
	// ledger has the steps whose functions have had an effect that was not undone.
	ledger map[string]bool
	// votes counts what was sent to each hook, and by each signal.
	votes   map[string]int
	cancels bool
}

// restSQL counts the work of a project that is under way or due, with the steps for which a slot is free since an equal
// one has ended, and returns the calls that wait for their answers. The call of a step that has ended is still under
// way: its connection is being closed.
const restSQL = `
	WITH work AS (
		SELECT run_id || '/' || subject AS key, lease <> '' AND work = 'step' AND run_id || '/' || subject = ANY ($2) AND EXISTS (
			SELECT FROM steps s JOIN runs r ON r.id = s.run_id
			WHERE s.run_id = m.run_id AND s.id = m.subject AND s.completed_at IS NULL AND r.completed_at IS NULL) AS waits
		FROM messages m
		WHERE project = $1 AND parked_at IS NULL AND (lease <> '' OR due_at < clock_timestamp() + interval '30 s')
	)
	SELECT count(*) FILTER (WHERE NOT waits) + (
			SELECT count(*) FROM permits p WHERE project = $1 AND granted_at IS NULL AND NOT EXISTS (
				SELECT FROM permits held WHERE project = $1 AND held.key = p.key AND granted_at IS NOT NULL)),
		coalesce(array_agg(key ORDER BY key) FILTER (WHERE waits), '{}') FROM work`

// settle waits until nothing happens any more, and reads the log.
func (p *player) settle(t *testing.T) bool {
	t.Helper()
	for began := time.Now(); time.Since(began) < testdb.Timeout; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		waiting := make([]string, 0, len(p.calls))
		for key := range p.calls {
			waiting = append(waiting, key)
		}
		p.mu.Unlock()
		busy := 0
		p.Scan(t, restSQL, []any{p.project, waiting}, &busy, &p.open)
		if busy == 0 {
			p.read(t)
			if p.ended || !slices.ContainsFunc(p.pending(), isContinuation) {
				return true
			}
			p.pass(t, p.now())
		}
		var retry *time.Time
		p.Scan(t, `SELECT max(retry_after) FROM steps JOIN runs r ON r.id = run_id
			WHERE project = $1 AND retry_after > $2 AND retry_after < $3 AND steps.completed_at IS NULL`,
			[]any{p.project, p.now(), p.now().Add(time.Minute)}, &retry)
		if retry != nil {
			p.clock.Store(retry.Truncate(time.Second).Add(time.Second).UnixMilli())
		}
	}
	p.read(t)
	list, _, _ := p.Messages(t.Context(), p.project, queue.Filter{}, pg.Page{Limit: 100})
	t.Errorf("the run does not come to rest; the calls %v are open, its work is\n%+v\nand its log\n%s", p.open, list, p.describe())
	return false
}

// isContinuation reports whether an event only divides a decision that was too long.
func isContinuation(e entities.Event) bool { return strings.HasPrefix(e.CorrelationID, "~continue#") }

// read reads the run and its log.
func (p *player) read(t *testing.T) {
	t.Helper()
	var err error
	if p.run, err = store.RunByID(t.Context(), pg.NewPool(p.pool), p.project, p.id); err != nil {
		t.Fatal(err)
	}
	p.events, p.ended = nil, p.run.Status.Ended()
	for page := (pg.Page{Limit: 1000}); ; page.Cursor = read.EventCursorAt(p.events[len(p.events)-1].Seq) {
		got, err := p.log.Events(t.Context(), p.project, p.id, page, read.WithPayloads)
		if err != nil {
			t.Fatal(err)
		}
		if p.events = append(p.events, got.Events...); !got.More {
			return
		}
	}
}

// options are what may happen next.
func (p *player) options(t *testing.T) (list []func(*testing.T)) {
	t.Helper()
	slices.SortFunc(p.open, func(a, b string) int { return cmp.Compare(p.nameOf(t, a), p.nameOf(t, b)) })
	for _, key := range p.open {
		list = append(list, func(t *testing.T) { p.answer(t, key) })
	}
	var soonest *entities.Event
	signals := map[string]bool{}
	for _, e := range p.pending() {
		switch id := e.CorrelationID; {
		case e.Type == entities.EventStepRetrying:
			list = append(list, func(t *testing.T) { p.endAsync(t, id) })
		case e.Type == entities.EventWaitCreated:
			if soonest == nil || e.Data.ResumeAt.Before(*soonest.Data.ResumeAt) {
				soonest = &e
			}
		case e.Data.Webhook != nil && e.Data.Webhook.Verify != "": // nobody has the secret
		case e.Data.Signal == "never" || p.votes[cmp.Or(e.Data.Signal, id)] > 3:
		case e.Data.Signal != "":
			if !signals[e.Data.Signal] {
				list = append(list, func(t *testing.T) { p.signal(t, e.Data.Signal) })
			}
			signals[e.Data.Signal] = true
		default:
			list = append(list, func(t *testing.T) { p.resume(t, e) })
		}
	}
	if soonest != nil {
		list = append(list, func(t *testing.T) { p.pass(t, *soonest.Data.ResumeAt) })
	}
	if p.cancels {
		list = append(list, p.cancel)
	}
	return list
}

// nameOf returns a name for a call that is the same in each play: for one of another run, the step that has started
// that.
func (p *player) nameOf(t *testing.T, key string) string {
	t.Helper()
	id, step, _ := strings.Cut(key, "/")
	if id == string(p.id) {
		return step
	}
	run, err := store.RunByID(t.Context(), pg.NewPool(p.pool), p.project, entities.RunID(id))
	if err != nil {
		t.Error(err)
	}
	name := string(run.ParentStep)
	for _, e := range p.events {
		if strings.Contains(string(e.Payload), id) {
			name = e.CorrelationID
		}
	}
	return name + "/" + step
}

// pending returns the waits and hooks that are open, and the steps whose functions send their results later.
func (p *player) pending() (list []entities.Event) {
	open := map[string]int{}
	for _, e := range p.events {
		switch e.Type {
		case entities.EventWaitCreated, entities.EventHookCreated:
			open[e.CorrelationID] = len(list)
			list = append(list, e)
		case entities.EventStepRetrying:
			if strings.Contains(string(e.Payload), `"`+codeAccepted+`"`) {
				open[e.CorrelationID] = len(list)
				list = append(list, e)
			}
		case entities.EventWaitCompleted, entities.EventWaitCancelled, entities.EventHookDisposed, entities.EventHookConflict,
			entities.EventStepCompleted, entities.EventStepFailed:
			if i, ok := open[e.CorrelationID]; ok {
				list[i].Type = ""
			}
		default:
		}
	}
	return slices.DeleteFunc(list, func(e entities.Event) bool { return e.Type == "" })
}

// answer has a call end in one of the ways in which calls end.
func (p *player) answer(t *testing.T, key string) {
	t.Helper()
	p.mu.Lock()
	c := p.calls[key]
	p.mu.Unlock()
	run, id, _ := strings.Cut(key, "/")
	mine := run == string(p.id)
	took := func() {
		switch {
		case !mine: // the child undoes the step
			parent, _, _ := strings.Cut(p.nameOf(t, key), "/")
			delete(p.ledger, strings.TrimSuffix(parent, "~undo"))
		case c.name == "e":
			p.ledger[id] = true
		case c.name == "u":
			delete(p.ledger, strings.TrimSuffix(id, "~undo"))
		}
	}
	end := func(status int, body string) {
		p.reply(t, key, func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	fail := func(status int, code string) {
		end(status, fmt.Sprintf(`{"error":{"message":"%s failed","code":%q}}`, c.name, code))
	}
	what := p.draw("answer", 14)
	p.trail = append(p.trail, fmt.Sprintf("%s: %d", p.nameOf(t, key), what))
	switch {
	case !c.isHTTP && p.draw("not ready", 100) == 0: // it takes a second until the next call
		p.reply(t, key, func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusAccepted)
		})
	case !mine && what > 2, c.name == "u" && what > 3:
		took()
		end(http.StatusOK, `"done"`)
	case what < 2:
		fail(map[bool]int{true: http.StatusNotFound, false: http.StatusUnprocessableEntity}[c.isHTTP], "x")
	case what == 2:
		fail(http.StatusUnprocessableEntity, "y")
	case what == 3:
		fail(http.StatusInternalServerError, "")
	case what == 4: // nobody knows what it did
		if p.draw("took effect", 2) == 0 {
			took()
		}
		fail(map[bool]int{true: http.StatusGatewayTimeout, false: http.StatusUnprocessableEntity}[c.isHTTP], contract.CodeTimeout)
	case what == 5: // no answer
		if p.draw("took effect", 2) == 0 {
			took()
		}
		p.reply(t, key, func(http.ResponseWriter) { panic(http.ErrAbortHandler) })
	case c.async && what < 12:
		end(http.StatusAccepted, "")
	case c.name == "p":
		end(http.StatusOK, flowgen.Pick(p.draw, "plan", flowgen.Planned, flowgen.Planned, `{"steps":{"a":{"call":"delete"}}}`))
	default:
		took()
		end(http.StatusOK, fmt.Sprintf(`{"n":%d}`, what))
	}
}

func (p *player) endAsync(t *testing.T, id string) {
	t.Helper()
	p.trail = append(p.trail, "result of "+id)
	result := StepResult{Output: []byte(`"later"`)}
	if p.draw("async", 3) == 0 {
		result = StepResult{Error: &contract.Failure{Message: "later", Code: "x"}}
	}
	if err := p.runs.EndStep(t.Context(), p.project, p.id, entities.StepID(id), result); err != nil {
		t.Error(err)
	}
}

func (p *player) signal(t *testing.T, name string) {
	t.Helper()
	p.votes[name]++
	p.trail = append(p.trail, "signal "+name)
	_, _, err := p.runs.PostSignal(t.Context(), store.Signal{Project: p.project, Name: name, Data: []byte(`{"by":"us"}`)}, 0)
	if err != nil {
		t.Error(err)
	}
}

// resume sends a hook a payload, which is a vote, too, and a webhook's a request.
func (p *player) resume(t *testing.T, hook entities.Event) {
	t.Helper()
	id := hook.CorrelationID
	p.votes[id]++
	p.trail = append(p.trail, "payload for "+id)
	payload := fmt.Sprintf(`{"decision":%q,"by":%q,"key":"k"}`, flowgen.Pick(p.draw, "vote", "approve", "approve", "reject"),
		flowgen.Pick(p.draw, "voter", "anna", "bob", "carl"))
	if hook.Data.Webhook != nil && p.draw("request", 4) > 0 {
		payload = `{"request":"r1"}`
	}
	if _, err := p.log.Append(t.Context(), p.project, eventlog.Request{
		RunID: p.id, Type: entities.EventHookReceived, CorrelationID: id, SpecVersion: entities.SpecDriven, Payload: []byte(payload),
		Data: entities.EventData{Verified: webhook.Vote},
	}); err != nil {
		t.Error(err)
	}
}

// pass lets time pass until a wait is over. The end of a wait follows from the database's clock, which does not stand
// still, so the player records it.
func (p *player) pass(t *testing.T, at time.Time) {
	t.Helper()
	p.clock.Store(at.UnixMilli())
	p.trail = append(p.trail, "time passes")
	var over []eventlog.Request
	for _, e := range p.pending() {
		if e.Type == entities.EventWaitCreated && !e.Data.ResumeAt.After(at) {
			over = append(over, eventlog.Request{
				Type: entities.EventWaitCompleted, CorrelationID: e.CorrelationID, SpecVersion: entities.SpecDriven,
			})
		}
	}
	if _, err := p.log.AppendAll(t.Context(), p.project, p.id, over, eventlog.AppendOptions{}); err != nil {
		t.Error(err)
	}
	p.Exec(t, `UPDATE messages SET due_at = clock_timestamp() WHERE project = $1 AND run_id = $2 AND work = 'run'`, p.project, p.id)
	p.WakeTimer(nil)
}

func (p *player) cancel(t *testing.T) {
	t.Helper()
	p.cancels, p.trail = false, append(p.trail, "cancelled")
	if _, _, err := p.log.Cancel(t.Context(), p.project, eventlog.Request{RunID: p.id, Grace: 1000 * time.Hour}); err != nil {
		t.Error(err)
	}
}

// random are the parts of a log that are random.
var random = regexp.MustCompile(`(wrun|sig|hook|approval)_[0-9A-Za-z]{20,}`)

// compared returns the events of a log, without what differs by nature, and what the run has answered to requests.
func (p *player) compared(t *testing.T) (list []string) {
	t.Helper()
	names, attempts := map[string]string{}, map[string]int{}
	for _, e := range p.events {
		v := view.Of(&e)
		switch {
		case e.Type == entities.EventStepStarted:
			attempts[e.CorrelationID]++
			continue
		case e.Type == entities.EventRunStarted, isContinuation(e):
			continue
		case e.Type == entities.EventRunCreated:
			v.Data.DeploymentID, v.Data.Build = "", ""
		case v.Data.Step != nil && v.Data.Step.HTTP != nil: // it is the run's, and nothing is called there
			v.Data.Step.DeploymentID = ""
		}
		v.Data.RetryAfter = nil
		v.RunID, v.Seq, v.ID = "", 0, 0
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, random.ReplaceAllStringFunc(string(text), func(id string) string {
			if names[id] == "" {
				names[id] = fmt.Sprintf("random %d", len(names))
			}
			return names[id]
		}))
	}
	var answers []string // to requests
	p.Scan(t, `SELECT coalesce(array_agg(convert_from(data, 'UTF8') ORDER BY name), '{}')
		FROM streams JOIN stream_chunks ON stream_id = id WHERE project = $1 AND run_id = $2`, []any{p.project, p.id}, &answers)
	return append(append(list, answers...), fmt.Sprint(attempts))
}

// describe returns the log, for failures.
func (p *player) describe() string {
	var b bytes.Buffer
	for _, e := range p.events {
		fmt.Fprintln(&b, e.Seq, e.Type, e.CorrelationID, string(e.Payload))
	}
	return b.String()
}

// checkLedger checks that what had an effect is undone if its run, or what it is in, has failed. An undo may
// fail.
func (p *player) checkLedger(t *testing.T, document string) {
	t.Helper()
	failed := map[string]bool{}
	for _, e := range p.events {
		if e.Type == entities.EventStepFailed {
			failed[e.CorrelationID] = true
		}
	}
	for id := range p.ledger {
		lost := p.run.Status != entities.RunCompleted
		for at := range id {
			lost = lost || strings.ContainsRune("[#.", rune(id[at])) && failed[id[:at]]
		}
		if lost && !failed[id+"~undo"] {
			t.Errorf("the effect of %s is left in a run that is %s; its log is\n%s\nof\n%s", id, p.run.Status, p.describe(), document)
		}
	}
}

// shown returns the events as functions see them.
func (p *player) shown(t *testing.T) (events []json.RawMessage) {
	t.Helper()
	for _, e := range p.events {
		text, err := json.Marshal(view.Of(&e))
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, text)
	}
	return events
}

// checkDecisions checks that the interpreter decides again what the log has.
func (p *player) checkDecisions(t *testing.T, document string) {
	t.Helper()
	if d, err := replay.Compare(t.Context(), p.program, contract.About(p.run), p.shown(t)); d != nil || err != nil {
		t.Errorf("%v (%v); the log is\n%s\nof\n%s", d, err, p.describe(), document)
	}
}
