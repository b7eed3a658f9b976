package wire_test

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// puller is an app that asks for its deliveries, and a worker at another process.
type puller struct{ *ownApp }

func newPuller(t *testing.T) puller {
	t.Helper()
	a := &ownApp{client: client{newServer(t), next}}
	startWorker(t, a.server, "pull:")
	return puller{a}
}

// ask posts a poll. Fields replace those of a poll that waits as long as it may.
func (p puller) ask(t *testing.T, more ...field) answer {
	t.Helper()
	fields := append([]field{
		{"world", uint16(1)}, {"deployment", "dpl_x"}, {"process", "p1"}, {"asked", true}, {"slots", uint16(10)},
		{"waitMs", uint16(30_000)}, {"receipts", []any{}},
	}, more...)
	return p.send(t, http.MethodPost, "/world/v1/pull", bytes.NewReader(meta(t, fields...)),
		"Stepwell-World", "1", "Content-Type", "application/cbor")
}

// polled is a delivery in the answer to a poll.
type polled struct {
	path string
	delivered
}

// deliveries decodes the answer to a poll.
func deliveries(t *testing.T, a answer) (list []polled) {
	t.Helper()
	wantStatus(t, a, http.StatusOK)
	check.Equal(t, "type", a.header.Get("Content-Type"), worldType)
	a.header = http.Header{"Content-Type": {framesType}}
	events, end := a.list(t)
	check.Equal(t, "end", end, map[string]any{"_end": uint64(1), "hasMore": false})
	for _, e := range events {
		d := polled{path: e.meta["path"].(string)}
		d.header, d.body = http.Header{}, []byte(e.body)
		for name, value := range e.meta["headers"].(map[string]any) {
			d.header.Set(name, value.(string))
		}
		d.answer.header = d.header
		list = append(list, d)
	}
	return list
}

// next waits for the next delivery, which must be alone.
func (p puller) next(t *testing.T) polled {
	t.Helper()
	list := deliveries(t, p.ask(t))
	if len(list) != 1 {
		t.Fatalf("got %d deliveries, want 1", len(list))
	}
	return list[0]
}

// ends commits the frames and the end of the delivery.
func (p puller) ends(t *testing.T, d polled, runID string, frames ...[]byte) {
	t.Helper()
	end := commitEnd(t, field{"ack", true}, field{"topic", flowTopic}, field{"receipt", d.header.Get("Ce-Vqsreceipthandle")})
	wantStatus(t, p.commit(t, commitHead(t, runID), joined(frames...), end), http.StatusOK)
}

// logOf decodes the body of a delivery.
func (d polled) logOf(t *testing.T) (head map[string]any, message string, events []event) {
	t.Helper()
	check.Equal(t, "type of the delivery", d.header.Get("Content-Type"), worldType)
	frames := answer{http.StatusOK, http.Header{"Content-Type": {framesType}}, d.body}.frames(t)
	return frames[0].meta, frames[0].body, frames[1 : len(frames)-1]
}

// TestPollsBringTheRun: a polled delivery is that of a call, and its process gets only what it does not know of the log.
func TestPollsBringTheRun(t *testing.T) {
	t.Parallel()
	p := newPuller(t)
	id := p.newRunNext(t)
	message := p.wake(t, id)
	first := p.next(t)
	check.Equal(t, "path", first.path, "/.well-known/workflow/v1/flow")
	check.Equal(t, "message", first.header.Get("Ce-Vqsmessageid"), message)
	check.Equal(t, "count", first.header.Get("Ce-Vqsdeliverycount"), "1")
	head, body, events := first.logOf(t)
	check.Equal(t, "message", body, "wake")
	check.Equal(t, "run", head["run"].(map[string]any)["runId"], any(id))
	check.Equal(t, "events", seqs(t, events), []int{1, 2})
	p.ends(t, first, id, framed(t, "step_created", "devl[3]", stepMeta("step_1")...))
	p.gone(t, message)

	p.wake(t, id)
	second := p.next(t)
	head, _, events = second.logOf(t)
	check.Equal(t, "after", head["after"], any(uint64(2)))
	check.Equal(t, "events", seqs(t, events), []int{3})
}

// TestPollRenewsLeases: also one without slots, which is answered at once.
func TestPollRenewsLeases(t *testing.T) {
	t.Parallel()
	p := newPuller(t)
	message := p.wake(t, p.newRunNext(t))
	d := p.next(t)
	testdb.Exec(t, p.pool, `UPDATE messages SET due_at = now() + interval '10 s' WHERE id = $1`, message)
	receipts := []any{d.header.Get("Ce-Vqsreceipthandle")}
	got := p.ask(t, field{"slots", uint16(0)}, field{"receipts", receipts})
	if list := deliveries(t, got); len(list) > 0 {
		t.Errorf("got %d deliveries for no slot", len(list))
	}
	p.eventually(t, "renewed", `SELECT due_at > now() + interval '20 s' FROM messages WHERE id = $1`, message)
}

// TestPollOfAnAppThatIsGone: what comes for it does not wait for its lease to end, and does not count.
func TestPollOfAnAppThatIsGone(t *testing.T) {
	t.Parallel()
	p := newPuller(t)
	ctx, cancel := context.WithCancel(t.Context())
	request := check.Value(http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/sdk/world/v1/pull", bytes.NewReader(meta(t,
		field{"world", uint16(1)}, field{"deployment", "dpl_x"}, field{"asked", true}, field{"slots", uint16(1)},
		field{"waitMs", uint16(30_000)}, field{"receipts", []any{}}))))(t)
	request.Header.Set("Stepwell-World", "1")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if resp, err := http.DefaultClient.Do(request); err == nil {
			_ = resp.Body.Close()
		}
	}()
	p.eventually(t, "asked", `SELECT count(*) > 0 FROM deployments WHERE answered_at IS NOT NULL AND id = $1`, "dpl_x")
	cancel()
	<-ended
	message := p.wake(t, p.newRunNext(t))
	d := p.next(t)
	check.Equal(t, "message", d.header.Get("Ce-Vqsmessageid"), message)
	check.Equal(t, "count", d.header.Get("Ce-Vqsdeliverycount"), "1")
}

// TestPollEndsWithTheServer: a server that is about to stop answers the polls that wait.
func TestPollEndsWithTheServer(t *testing.T) {
	t.Parallel()
	p := newPuller(t)
	got := make(chan answer)
	go func() { got <- p.ask(t) }()
	p.eventually(t, "asked", `SELECT count(*) > 0 FROM deployments WHERE answered_at IS NOT NULL AND id = $1`, "dpl_x")
	p.drain()
	select {
	case a := <-got:
		check.Equal(t, "deliveries", len(deliveries(t, a)), 0)
	case <-time.After(time.Minute):
		t.Error("the poll waits for a server that stops")
	}
}

func TestPollsAreRefused(t *testing.T) {
	t.Parallel()
	p := newPuller(t)
	check.Value(p.pool.Exec(t.Context(),
		`INSERT INTO deployments (project, id, url) VALUES ('default', 'dpl_url', 'http://app.test')`))(t)
	for _, tt := range []struct {
		name   string
		fields []field
		status int
		code   string
	}{
		{"no deployment", []field{{"deployment", ""}}, 400, "invalid_request"},
		{"a deployment that cannot be", []field{{"deployment", "a\nb"}}, 400, "invalid_request"},
		{"a deployment that is reserved", []field{{"deployment", "latest"}}, 400, "invalid_request"},
		{"fewer slots than none", []field{{"slots", -1}}, 400, "invalid_request"},
		{"too many slots", []field{{"slots", uint16(1001)}}, 400, "invalid_request"},
		{"too long a wait", []field{{"waitMs", uint16(30_001)}}, 400, "invalid_request"},
		{"slots that are no number", []field{{"slots", "many"}}, 400, "malformed"},
		{"an app with a URL", []field{{"deployment", "dpl_url"}}, 409, "deployment_has_url"},
		{"an app with a URL that was not told to ask", []field{{"deployment", "dpl_url"}, {"asked", false}}, 409, "deployment_has_url"},
		{"an app that was not told to ask", []field{{"deployment", "dpl_new"}, {"asked", false}}, 403, "pull_unasked"},
	} {
		t.Log(tt.name)
		wantProblem(t, p.ask(t, tt.fields...), tt.status, tt.code)
	}
	got := p.send(t, http.MethodPost, "/world/v1/pull", bytes.NewReader(meta(t)), "Content-Type", "application/cbor")
	wantProblem(t, got, 400, "world_version")
}
