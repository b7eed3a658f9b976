package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/strictjson"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

// service is what HTTP steps call. It notes what it gets, and answers by the path.
type service struct {
	*httptest.Server

	calls atomic.Int32
	last  atomic.Pointer[http.Request]
	body  atomic.Pointer[string]
}

// deep is JSON with one level more than the results of steps may have.
var deep = strings.Repeat("[", strictjson.MaxDepth+1) + strings.Repeat("]", strictjson.MaxDepth+1)

func startService(t *testing.T) *service {
	t.Helper()
	s := &service{}
	hang := make(chan struct{})
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		text := string(body)
		s.last.Store(r)
		s.body.Store(&text)
		n := s.calls.Add(1)
		switch r.URL.Path {
		case "/json":
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			w.Header().Set("X-Secret", "not for the log")
			_, _ = io.WriteString(w, `{"n": 12345678901234567890}`)
		case "/text":
			_, _ = io.WriteString(w, "hello")
		case "/bytes":
			w.Header().Set("Content-Type", "image/png")
			_, _ = w.Write([]byte{0xff, 0})
		case "/missing":
			w.WriteHeader(http.StatusNotFound)
		case "/redirect":
			http.Redirect(w, r, "/json", http.StatusFound)
		case "/twice":
			if n == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		case "/conflict":
			w.WriteHeader(http.StatusConflict)
		case "/deep":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, deep)
		case "/longlink":
			w.Header().Set("Link", strings.Repeat("a", maxKeptHeader+1))
		case "/header":
			w.Header().Set("X-Large", strings.Repeat("a", 64<<10))
		case "/big":
			_, _ = w.Write(make([]byte, maxHTTPAnswer+1))
		case "/hang":
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(hang) })
	return s
}

// runOne runs a workflow of one command, and ends as its step does.
func runOne(t *testing.T, command map[string]any) (*server, entities.RunID) {
	t.Helper()
	d := startServer(t, serve(t, func(c *functionCall) {
		switch {
		case c.Type == contract.TypeStep:
			t.Errorf("the function is called for the step %s", c.Step.ID)
		case c.has("step_completed", "a"):
			c.reply(map[string]any{"type": "complete", "output": c.log["step_completed a"]})
		case c.has("step_failed", "a"):
			c.reply(map[string]any{"type": "fail", "error": c.log["step_failed a"]})
		default:
			c.reply(command)
		}
	}))
	return d, d.startRun(t, `{}`)
}

func httpStep(fields, more map[string]any) map[string]any {
	step := map[string]any{"type": "runStep", "id": "a", "http": fields, "retry": map[string]any{"maxAttempts": 3, "backoff": "1ms"}}
	for name, value := range more {
		step[name] = value
	}
	return step
}

// TestHTTPSteps makes requests to a real server: which answers complete the step, and which are repeated.
func TestHTTPSteps(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, test := range map[string]struct {
		path   string
		fields map[string]any
		more   map[string]any
		status entities.RunStatus
		want   string // a part of the payload of the run's end
		calls  int32
	}{
		"JSON":                     {"/json", nil, nil, entities.RunCompleted, `"body":{"n":12345678901234567890}`, 1},
		"text":                     {"/text", nil, nil, entities.RunCompleted, `"text":"hello"`, 1},
		"bytes":                    {"/bytes", nil, nil, entities.RunCompleted, `"bodyBase64":"/wA="`, 1},
		"deep JSON is text":        {"/deep", nil, nil, entities.RunCompleted, `"text":"[[[`, 1},
		"a long header is dropped": {"/longlink", nil, nil, entities.RunCompleted, `{"status":200}`, 1},
		"headers beyond the limit": {"/header", nil, map[string]any{"retry": map[string]any{"maxAttempts": 1}},
			entities.RunFailed, `"code":"no_answer"`, 1},
		"a client error fails for good": {"/missing", nil, nil, entities.RunFailed,
			`"code":"http_404","details":{"status":404}`, 1},
		"a status that is a success": {"/missing", map[string]any{"success": []string{"2xx", "404"}}, nil,
			entities.RunCompleted, `{"status":404}`, 1},
		"redirects are not followed": {"/redirect", nil, nil, entities.RunFailed, `"code":"http_302"`, 1},
		"a server error is repeated": {"/twice", nil, nil, entities.RunCompleted, `{"status":200}`, 2},
		"a status that is repeated": {"/conflict", map[string]any{"retryOn": []string{"409"}}, nil,
			entities.RunFailed, `"code":"http_409"`, 3},
		"too large": {"/big", nil, nil, entities.RunFailed, `than 4 MiB: answer with less, such as where the rest is","code":"answer_too_large"`, 1},
		"too slow": {"/hang", nil, map[string]any{"attemptTimeout": "1s", "retry": map[string]any{"maxAttempts": 1}},
			entities.RunFailed, `"code":"no_answer"`, 1},
		"nobody is there": {"", map[string]any{"url": gone.URL}, nil, entities.RunFailed, `"code":"unreachable"`, 0},
		"a forbidden address": {"", map[string]any{"url": "http://169.254.169.254/latest"}, nil, entities.RunFailed,
			`"code":"forbidden_address"`, 0},
		"an unknown secret": {"/json", map[string]any{"headers": map[string]any{"Authorization": map[string]any{"secret": "no"}}}, nil,
			entities.RunFailed, `"secret no does not exist: stepwell secrets set no --origin http://127.0.0.1`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startService(t)
			fields := map[string]any{"url": s.URL + test.path}
			for name, value := range test.fields {
				fields[name] = value
			}
			d, id := runOne(t, httpStep(fields, test.more))
			status, payload := d.waitForEnd(t, id)
			if status != test.status || !strings.Contains(payload, test.want) || strings.Contains(payload, "not for the log") {
				t.Errorf("ended %s with %.300s, want %s with %s\n%s", status, payload, test.status, test.want, d.describe(t, id))
			}
			if n := s.calls.Load(); n != test.calls {
				t.Errorf("%d requests, want %d", n, test.calls)
			}
		})
	}
}

// TestHTTPRequests: the request has its body, its idempotency key and its headers, and a secret goes only to where it
// may, and never to the log.
func TestHTTPRequests(t *testing.T) {
	t.Parallel()
	s := startService(t)
	command := httpStep(map[string]any{
		"method": "PUT", "url": s.URL + "/json?a=b", "body": map[string]any{"sum": 1},
		"headers": map[string]any{"X-Mine": "yes", "Authorization": map[string]any{"secret": "mail", "prefix": "Bearer "}},
	}, map[string]any{"name": "mail"})
	ready := make(chan struct{})
	d := startServer(t, serve(t, func(c *functionCall) {
		<-ready
		if c.has("step_completed", "a") {
			c.reply(map[string]any{"type": "complete"})
			return
		}
		c.reply(command)
	}))
	secrets := admin.NewSecrets(d.pool, d.log.Now)
	if _, err := secrets.Put(t.Context(), project, "mail", []admin.SecretValue{"s3cr3t", "old"}, s.URL); err != nil {
		t.Fatal(err)
	}
	close(ready)
	id := d.startRun(t, `{}`)
	d.wantEnd(t, id, entities.RunCompleted, "null")
	got := s.last.Load()
	for name, want := range map[string]string{
		"Idempotency-Key": string(id) + "/a", "X-Mine": "yes", "Authorization": "Bearer s3cr3t",
		"Content-Type": "application/json", "Signature": "", "Traceparent": "",
	} {
		if v := got.Header.Get(name); v != want {
			t.Errorf("%s is %q, want %q", name, v, want)
		}
	}
	if got.Method != http.MethodPut || got.URL.RawQuery != "a=b" || *s.body.Load() != `{"sum":1}` {
		t.Errorf("got %s %s with %s", got.Method, got.URL, *s.body.Load())
	}
	if log := d.describe(t, id); strings.Contains(log, "s3cr3t") {
		t.Errorf("the log has the secret:\n%s", log)
	}
	if _, err := secrets.ValueFor(t.Context(), project, "mail", "https://elsewhere.example.com"); err == nil {
		t.Error("the secret may be sent elsewhere")
	}
	_, err := secrets.Put(t.Context(), project, "mail", []admin.SecretValue{"v"}, "mail.example.com")
	testdb.WantError(t, "an origin without a scheme", err, entities.ErrInvalid)
}

// TestSecretsThatCannotBeRead: an error of the database while a secret is read is no attempt. The delivery is repeated.
func TestSecretsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := startService(t)
	ready := make(chan struct{})
	d := startServer(t, serve(t, func(c *functionCall) {
		<-ready
		if c.has("step_completed", "a") {
			c.reply(map[string]any{"type": "complete"})
			return
		}
		c.reply(map[string]any{"type": "runStep", "id": "a", "retry": map[string]any{"maxAttempts": 1}, "http": map[string]any{
			"url": s.URL + "/json", "headers": map[string]any{"Authorization": map[string]any{"secret": "mail"}},
		}})
	}))
	if _, err := admin.NewSecrets(d.pool, d.log.Now).Put(t.Context(), project, "mail", []admin.SecretValue{"v"}, s.URL); err != nil {
		t.Fatal(err)
	}
	rename := func(from, to string) {
		t.Helper()
		if _, err := d.pool.Exec(t.Context(), `ALTER TABLE `+from+` RENAME TO `+to); err != nil {
			t.Fatal(err)
		}
	}
	rename("secrets", "away")
	close(ready)
	id := d.startRun(t, `{}`)
	testdb.Eventually(t, "a delivery has failed", func() bool {
		return d.Count(t, `SELECT count(*) FROM messages WHERE run_id = $1 AND work = 'step' AND unreached_count > 0`, id) > 0
	})
	rename("away", "secrets")
	d.wantEnd(t, id, entities.RunCompleted, "null")
	if n := s.calls.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// TestAsyncSteps: the function accepts the step, and the result comes later, once.
func TestAsyncSteps(t *testing.T) {
	t.Parallel()
	accepted := make(chan *contract.Callback, 10)
	d := startServer(t, serve(t, func(c *functionCall) {
		switch {
		case c.Type == contract.TypeStep:
			accepted <- c.Step.Callback
			c.w.WriteHeader(http.StatusAccepted)
		case c.has("step_completed", "a"):
			c.reply(map[string]any{"type": "complete", "output": c.log["step_completed a"]})
		case c.has("step_failed", "a"):
			c.reply(map[string]any{"type": "fail", "error": c.log["step_failed a"]})
		default:
			var input struct{ Timeout string }
			_ = json.Unmarshal(c.Run.Input, &input)
			c.reply(map[string]any{"type": "runStep", "id": "a", "async": true, "timeout": input.Timeout})
		}
	}))
	id := d.startRun(t, `{"timeout":"1h"}`)
	callback := testdb.Receive(t, "the call", accepted)
	if callback.URL != "/v1/runs/"+string(id)+"/steps/a/result" {
		t.Errorf("the callback is %s", callback.URL)
	}
	d.waitForEvent(t, id, "step_retrying a")
	call, ok, err := d.runs.VerifyCall(t.Context(), callback.Token)
	if step, isCallback := call.Step(); !ok || err != nil || !isCallback || step != "a" || call.RunID != id {
		t.Errorf("the token is for %+v: %v", call, err)
	}
	for _, tooDeep := range []StepResult{
		{Output: []byte(deep)}, {Error: &contract.Failure{Message: "m", Details: []byte(deep)}},
	} {
		testdb.WantError(t, "a deep result", d.runs.EndStep(t.Context(), project, id, "a", tooDeep), entities.ErrInvalid)
	}
	errs := make(chan error, 8)
	for n := range cap(errs) {
		go func() {
			errs <- d.runs.EndStep(t.Context(), project, id, "a", StepResult{Output: fmt.Append(nil, n)})
		}()
	}
	recorded := 0
	for range cap(errs) {
		if err := <-errs; err == nil {
			recorded++
		} else if !isAny(err, entities.ErrConflict, entities.ErrRunEnded) {
			t.Errorf("a result: %v", err)
		}
	}
	if status, payload := d.waitForEnd(t, id); recorded != 1 || status != entities.RunCompleted {
		t.Errorf("%d results were recorded; the run ended %s with %s", recorded, status, payload)
	}
	d.Want(t, "pieces of work are left", 0, `SELECT count(*) FROM messages WHERE run_id = $1 AND work = 'step'`, id)

	late := d.startRun(t, `{"timeout":"300ms"}`)
	if status, payload := d.waitForEnd(t, late); status != entities.RunFailed || !strings.Contains(payload, `"code":"timeout"`) {
		t.Errorf("without a result, the run ended %s with %s", status, payload)
	}
	if n := len(accepted); n != 1 {
		t.Errorf("the function was called %d times for the second run", n)
	}
}

func isAny(err error, list ...error) bool {
	for _, one := range list {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// TestNotReadyUsesNoAttempt: the function asks to be called later, more often than it has attempts. A time that is
// over asks for that too.
func TestNotReadyUsesNoAttempt(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	over := []string{"0", "Sat, 21 Nov 2015 10:00:00 GMT"}
	d := startServer(t, serve(t, func(c *functionCall) {
		switch {
		case c.Type == contract.TypeStep && int(calls.Add(1)) <= len(over):
			c.w.Header().Set("Retry-After", over[calls.Load()-1])
			c.w.WriteHeader(http.StatusAccepted)
		case c.Type == contract.TypeStep:
			_, _ = io.WriteString(c.w, fmt.Sprint(c.Attempt))
		case c.has("step_completed", "a"):
			c.reply(map[string]any{"type": "complete", "output": c.log["step_completed a"]})
		default:
			c.reply(map[string]any{"type": "runStep", "id": "a", "retry": map[string]any{"maxAttempts": 1}})
		}
	}))
	d.wantEnd(t, d.startRun(t, `{}`), entities.RunCompleted, "1")
}

// TestEmitAndStartRun: both happen in the transaction of their step, and survive the end of the run.
func TestEmitAndStartRun(t *testing.T) {
	t.Parallel()
	d := startServer(t, serve(t, func(c *functionCall) {
		switch {
		case c.Run.Workflow == "other":
			c.reply(map[string]any{"type": "complete", "output": c.Run.Input})
		case string(c.Run.Input) == `"listener"` && c.has("hook_received", "h"):
			c.reply(map[string]any{"type": "complete", "output": c.log["hook_received h"]})
		case string(c.Run.Input) == `"listener"`:
			c.reply(map[string]any{"type": "openHook", "id": "h", "signal": map[string]any{"name": "news"}})
		case c.has("step_completed", "other"):
			c.reply(
				map[string]any{"type": "emit", "id": "tell", "signal": "news", "data": map[string]any{"n": 1}},
				map[string]any{"type": "complete", "output": c.log["step_completed other"]})
		default:
			c.reply(map[string]any{"type": "startRun", "id": "other", "workflow": "other", "deployment": deployment, "input": 7})
		}
	}))
	listener := d.startRun(t, `"listener"`)
	d.waitForEvent(t, listener, "hook_created h")
	_, payload := d.waitForEnd(t, d.startRun(t, `"main"`))
	if status, heard := d.waitForEnd(t, listener); status != entities.RunCompleted || !strings.Contains(heard, `"data":{"n":1}`) {
		t.Errorf("the listener ended %s with %s", status, heard)
	}
	var started struct{ RunID entities.RunID }
	if err := json.Unmarshal([]byte(payload), &started); err != nil {
		t.Fatal(err)
	}
	d.wantEnd(t, started.RunID, entities.RunCompleted, "7")
}

// TestStartRunLater: a run with a delay is there at once and starts after it; its timeout counts from then on.
func TestStartRunLater(t *testing.T) {
	t.Parallel()
	d := startServer(t, serve(t, func(c *functionCall) {
		if !c.has("step_completed", "later") {
			c.reply(object{
				"type": "startRun", "id": "later", "workflow": "other", "deployment": deployment, "delay": "1h", "timeout": "1h",
			})
			return
		}
		c.reply(object{"type": "complete", "output": c.log["step_completed later"]})
	}))
	_, payload := d.waitForEnd(t, d.startRun(t, `null`))
	var started struct{ RunID entities.RunID }
	if err := json.Unmarshal([]byte(payload), &started); err != nil {
		t.Fatal(err)
	}
	created := d.logOf(t, started.RunID)
	if len(created) != 1 || created[0].Data.StartAt == nil || created[0].Data.Deadline == nil {
		t.Fatalf("the log of the run is %+v", created)
	}
	of := created[0].Data
	if wait := of.StartAt.Sub(created[0].CreatedAt); wait < 59*time.Minute || wait > time.Hour {
		t.Errorf("it starts after %s", wait)
	}
	if span := of.Deadline.Sub(*of.StartAt); span != time.Hour {
		t.Errorf("it may take %s", span)
	}
	if n := d.Count(t, `SELECT count(*) FROM messages WHERE run_id = $1 AND work = 'run' AND due_at > now() + interval '50 minutes'`,
		started.RunID); n != 1 {
		t.Errorf("%d messages start it later", n)
	}
}

// TestNamesThatLeadNowhereAreUnreachable: whether a name is unknown or has a forbidden address makes no difference.
func TestNamesThatLeadNowhereAreUnreachable(t *testing.T) {
	t.Parallel()
	f, retryable := requestFailure(&net.OpError{Op: "dial", Net: "tcp", Err: &egress.NoAddressError{Host: "db"}})
	if f.Code != CodeUnreachable || !retryable {
		t.Errorf("got %+v, retryable %t; want %s, to be repeated", f, retryable, CodeUnreachable)
	}
}
