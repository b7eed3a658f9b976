package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/starts/collection"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

// trigger puts a trigger with a webhook, and returns the webhook's path.
func (d *testServer) trigger(t *testing.T, project entities.Project, edit ...func(*trigger.Spec)) string {
	t.Helper()
	check.Value(d.queue.PutDeployment(t.Context(), project, "shop", "http://127.0.0.1:1"))(t)
	spec := trigger.Spec{Kind: trigger.KindWebhook, Workflow: "order"}
	for _, e := range edit {
		e(&spec)
	}
	trg, _, err := engine.New(d.queue, d.log).Triggers().Put(t.Context(), project, "t", spec)
	if err != nil {
		t.Fatal(err)
	}
	if project == entities.DefaultProject {
		return "/hooks/" + trg.Source
	}
	return "/hooks/" + string(project) + "/" + trg.Source
}

// wantStarted checks that a request has started a run, and returns the run.
func wantStarted(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	wantAccepted(t, w)
	var answer struct{ RunID string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || !strings.HasPrefix(answer.RunID, "wrun_") {
		t.Fatalf("got %s, want the ID of a run", w.Body)
	}
	return answer.RunID
}

func (d *testServer) countRuns(t *testing.T) (n int) {
	t.Helper()
	check.NoError(t, d.pool.QueryRow(t.Context(), `SELECT count(*) FROM runs`).Scan(&n))
	return n
}

// TestRequestsToATriggerStartRuns, each one. With an Idempotency-Key, a request counts once, with the same body only.
func TestRequestsToATriggerStartRuns(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	path := d.trigger(t, entities.DefaultProject)
	first := wantStarted(t, d.call(http.MethodPost, path, `{"a":1}`, "Content-Type", "application/json"))
	e, err := d.log.Event(t.Context(), entities.DefaultProject, entities.RunID(first), 1)
	if err != nil || !strings.Contains(string(e.Payload), `"method":"POST"`) || !strings.Contains(string(e.Payload), `"body":{"a":1}`) {
		t.Errorf("got the input %s, %v", e.Payload, err)
	}
	if wantStarted(t, d.call(http.MethodPost, path, `{"a":1}`)) == first {
		t.Error("a request without a key did not start a run of its own")
	}
	key := []string{"Idempotency-Key", "k"}
	var race sync.WaitGroup
	started := make([]string, 8)
	for i := range started {
		race.Go(func() { started[i] = d.call(http.MethodPost, path, "x", key...).Body.String() })
	}
	race.Wait()
	for _, answer := range started {
		if answer != started[0] || !strings.Contains(answer, "wrun_") {
			t.Errorf("got the answers %q and %q", answer, started[0])
		}
	}
	wantRejected(t, d.call(http.MethodPost, path, "y", key...), http.StatusConflict, "idempotency_mismatch")
	check.Equal(t, "runs", d.countRuns(t), 3)
}

// TestSignedRequestsToATrigger count once per delivery, whatever the sender calls it.
func TestSignedRequestsToATrigger(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	path := d.trigger(t, entities.DefaultProject, func(s *trigger.Spec) { s.Verify, s.Secret = "github", "hub" })
	mac := hmac.New(sha256.New, []byte("top"))
	mac.Write([]byte("x"))
	signed := []string{"X-Hub-Signature-256", "sha256=" + hex.EncodeToString(mac.Sum(nil)), "X-GitHub-Delivery", "1"}
	wantRejected(t, d.call(http.MethodPost, path, "x", signed...), http.StatusServiceUnavailable, "unverifiable")
	check.Value(d.secrets.Put(t.Context(), entities.DefaultProject, "hub", []admin.SecretValue{"top"}))(t)
	wantRejected(t, d.call(http.MethodPost, path, "y", signed...), http.StatusUnauthorized, "wrong_signature")
	wantRejected(t, d.call(http.MethodPost, path, "x"), http.StatusUnauthorized, "wrong_signature")
	first := wantStarted(t, d.call(http.MethodPost, path, "x", signed...))
	check.Equal(t, "the same delivery started", wantStarted(t, d.call(http.MethodPost, path, "x", signed...)), first)
	signed[3] = "2"
	if other := wantStarted(t, d.call(http.MethodPost, path, "x", signed...)); other == first {
		t.Error("another delivery started nothing")
	}
	check.Equal(t, "runs", d.countRuns(t), 2)
}

// TestRefusedRequestCanBeSentAgain: no app has the workflow; then one has, and the same delivery starts its run.
func TestRefusedRequestCanBeSentAgain(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	path := d.trigger(t, entities.DefaultProject)
	check.NoError(t, d.queue.RemoveDeployment(t.Context(), entities.DefaultProject, "shop"))
	key := []string{"Idempotency-Key", "k"}
	w := d.call(http.MethodPost, path, "x", key...)
	if wantRejected(t, w, http.StatusServiceUnavailable, "start_refused"); strings.Contains(w.Body.String(), "order") {
		t.Errorf("the answer %s tells strangers the workflow", w.Body)
	}
	check.Value(d.queue.PutDeployment(t.Context(), entities.DefaultProject, "shop", "http://127.0.0.1:1"))(t)
	wantStarted(t, d.call(http.MethodPost, path, "x", key...))
}

// TestFullLimitTellsTheSenderWhenToTryAgain, and not whose limit it is.
func TestFullLimitTellsTheSenderWhenToTryAgain(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	path := d.trigger(t, entities.DefaultProject)
	limits := limit.NewStore(d.pool, time.Now)
	_, err := limits.Put(t.Context(), entities.DefaultProject, "one", limit.Spec{PerKey: 1, OnFull: limit.Reject})
	if err != nil {
		t.Fatal(err)
	}
	_, err = limits.PutPolicy(t.Context(), limit.Policy{
		Project: entities.DefaultProject, Workflow: "order", Limits: []limit.PolicyUse{{Name: "one", Key: "'tenant-7'"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantStarted(t, d.call(http.MethodPost, path, "x"))
	w := d.call(http.MethodPost, path, "x")
	wantRejected(t, w, http.StatusTooManyRequests, "too_many_requests")
	if strings.Contains(w.Body.String(), "tenant-7") || w.Header().Get("Retry-After") == "" {
		t.Errorf("got %s with the header %v", w.Body, w.Header())
	}
}

// TestTriggersWithoutTheURLAreNotFound: the answer is that for an unknown token, byte for byte.
func TestTriggersWithoutTheURLAreNotFound(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	path, away := d.trigger(t, entities.DefaultProject), d.trigger(t, "away")
	wantStarted(t, d.call(http.MethodPost, away, "x"))
	triggers := engine.New(d.queue, d.log).Triggers()
	check.Value(triggers.Pause(t.Context(), entities.DefaultProject, "t", ""))(t)
	answer := func(path string) string {
		w := d.call(http.MethodPost, path, "x")
		text, _, _ := strings.Cut(w.Body.String(), "requestId") // each has its own
		return fmt.Sprint(w.Code, w.Header()["Connection"], text)
	}
	unknown := answer("/hooks/nothing")
	for what, path := range map[string]string{
		"paused": path, "its name": "/hooks/t", "of another project": strings.Replace(away, "/away", "", 1),
	} {
		if got := answer(path); got != unknown || !strings.HasPrefix(got, "404") {
			t.Errorf("%s: got %s, want %s", what, got, unknown)
		}
	}
	check.Equal(t, "runs", d.countRuns(t), 1)
}

// TestSlackVerifiesATriggersURL without starting a run.
func TestSlackVerifiesATriggersURL(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	path := d.trigger(t, entities.DefaultProject, func(s *trigger.Spec) { s.Verify, s.Secret = "slack", "slack" })
	check.Value(d.secrets.Put(t.Context(), entities.DefaultProject, "slack", []admin.SecretValue{"top"}))(t)
	body, stamp := `{"type":"url_verification","challenge":"c"}`, "1795225303" // t0
	mac := hmac.New(sha256.New, []byte("top"))
	mac.Write([]byte("v0:" + stamp + ":" + body))
	w := d.call(http.MethodPost, path, body, "Content-Type", "application/json",
		"X-Slack-Signature", "v0="+hex.EncodeToString(mac.Sum(nil)), "X-Slack-Request-Timestamp", stamp)
	if w.Code != http.StatusOK || w.Body.String() != "c" || d.countRuns(t) != 0 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

// TestTriggerRespondsWithTheRun: the sender of a request gets what the run responds, or else its output, and learns of
// its failure nothing but that. Of a run that takes longer, it gets the ID.
func TestTriggerRespondsWithTheRun(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	function := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			Events []struct {
				Payload struct {
					Request string
					Body    struct{ Do string }
				}
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			t.Error(err)
		}
		respond := fmt.Sprintf(`{"type":"respond","request":%q,"status":201,"body":{"by":"respond"}}`, call.Events[0].Payload.Request)
		_, _ = fmt.Fprintf(w, `{"commands":[%s]}`, map[string]string{
			"complete": `{"type":"complete","output":{"n": 1}}`,
			"fail":     `{"type":"fail","error":{"message":"inside","code":"own"}}`,
			"respond":  respond + `,{"type":"wait","id":"w","for":"1h"}`,
			"both":     respond + `,{"type":"complete","output":1}`,
			"wait":     `{"type":"wait","id":"w","for":"1h"}`,
		}[call.Events[0].Payload.Body.Do])
	}))
	t.Cleanup(function.Close)
	path := d.trigger(t, entities.DefaultProject, func(s *trigger.Spec) { s.Options.Respond = time.Minute })
	check.Value(d.queue.PutDeployment(t.Context(), entities.DefaultProject, "shop", function.URL))(t)
	d.work(t)
	send := func(do string) *httptest.ResponseRecorder {
		return d.call(http.MethodPost, path, `{"do":"`+do+`"}`, "Content-Type", "application/json", "Idempotency-Key", do)
	}
	answered := func(do string) (w *httptest.ResponseRecorder) { // even if the run takes longer than a request waits
		for range 10 {
			if w = send(do); w.Code != http.StatusAccepted {
				break
			}
		}
		return w
	}
	for _, test := range []struct {
		do, body string
		status   int
	}{
		{"complete", `{"n": 1}`, http.StatusOK}, {"respond", `{"by":"respond"}`, http.StatusCreated},
		{"both", `{"by":"respond"}`, http.StatusCreated},
	} {
		for range 2 { // a repetition gets the same
			w := answered(test.do)
			if w.Code != test.status || w.Body.String() != test.body || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%s: got %d %s", test.do, w.Code, w.Body)
			}
		}
	}
	w := answered("fail")
	if wantRejected(t, w, http.StatusUnprocessableEntity, "run_failed"); strings.Contains(w.Body.String(), "inside") {
		t.Errorf("the answer %s tells strangers the error", w.Body)
	}
	d.trigger(t, entities.DefaultProject, func(s *trigger.Spec) { s.Options.Respond = time.Millisecond })
	wantStarted(t, send("wait"))
}

// TestTriggersThatCannotRespond are refused: of a run that starts later nobody can wait for the response.
func TestTriggersThatCannotRespond(t *testing.T) {
	t.Parallel()
	for field, edit := range map[string]func(*trigger.Spec){
		"longer than a minute": func(s *trigger.Spec) { s.Options.Respond = time.Minute + 1 },
		"with a delay":         func(s *trigger.Spec) { s.Options.Respond, s.Options.Delay = time.Second, time.Second },
		"with a batch": func(s *trigger.Spec) {
			s.Options.Respond, s.Options.Collect = time.Second, &collection.Rule{Kind: collection.Batch}
		},
	} {
		spec := trigger.Spec{Kind: trigger.KindWebhook, Workflow: "order"}
		edit(&spec)
		var bad *entities.FieldError
		if err := spec.Validate(); !errors.As(err, &bad) || bad.Field != "on.webhook.respond" {
			t.Errorf("%s: got %v", field, err)
		}
	}
}
