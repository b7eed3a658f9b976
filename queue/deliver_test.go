package queue

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func TestDeliveryHasTheHeadersOfTheProtocol(t *testing.T) {
	t.Parallel()
	answer := make(chan struct{}) // held back, since an answer shortens the lease
	a := newApp(t, func(http.ResponseWriter, *http.Request, call) { <-answer })
	r := start(t, a)
	t.Cleanup(func() { close(answer) })
	id := r.send(t, body("\x00\xff\xfe not text"), func(m *message.Message) { m.ContentType = "application/x-odd; a=b" })
	c := a.next(t)

	var created, expires, due time.Time
	var handle string
	r.Scan(t, `SELECT created_at, expires_at, due_at, lease FROM messages WHERE id = $1`, []any{id},
		&created, &expires, &due, &handle)
	const iso = "2006-01-02T15:04:05.000Z"
	want := call{
		Path: "POST /.well-known/workflow/v1/flow",
		Header: http.Header{
			"Ce-Id":                    {id},
			"Ce-Source":                {"/stepwell/topics/" + topic},
			"Ce-Specversion":           {"1.0"},
			"Ce-Type":                  {"com.vercel.queue.v2beta"},
			"Ce-Vqsconsumergroup":      {"default"},
			"Ce-Vqscreatedat":          {created.UTC().Format(iso)},
			"Ce-Vqsdeliverycount":      {"1"},
			"Ce-Vqsexpiresat":          {expires.UTC().Format(iso)},
			"Ce-Vqsmessageid":          {id},
			"Ce-Vqsqueuename":          {topic},
			"Ce-Vqsreceipthandle":      {handle},
			"Ce-Vqsvisibilitydeadline": {due.Add(shownLease - leaseTime).UTC().Format(iso)},
			"Content-Length":           {"12"},
			"Content-Type":             {"application/x-odd; a=b"},
			"User-Agent":               {"stepwell"},
		},
		Body: []byte("\x00\xff\xfe not text"),
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("call (-want +got):\n%s", diff)
	}
	if handle == "" {
		t.Error("the receipt handle is empty")
	}
}

func TestBodiesAreDeliveredUnchanged(t *testing.T) {
	t.Parallel()
	a := newApp(t, nil)
	r := start(t, a)
	big := make([]byte, 5<<20)
	for i := range big {
		big[i] = byte(i * 7)
	}
	for name, b := range map[string][]byte{"nil": nil, "empty": {}, "one NUL": {0}, "big": big} {
		id := r.send(t, func(m *message.Message) { m.Body = b })
		c := a.next(t)
		if c.id() != id || string(c.Body) != string(b) {
			t.Errorf("%s: got message %s with %d bytes, want %s with the %d sent", name, c.id(), len(c.Body), id, len(b))
		}
	}
}

func TestDeliveryGoesToTheTopicsRoute(t *testing.T) {
	t.Parallel()
	for topic, want := range map[string]string{
		"__wkf_workflow_a":            "flow",
		"__wkf_step_a":                "step",
		"__ns_wkf_step_a":             "step",
		"__n-s_wkf_workflow_a":        "flow",
		"__wkf_workflow_health_check": "flow",
		"__wkf_step_health_check":     "step",
		"x__wkf_step_a":               "flow",
		"__wkf_workflow___wkf_step_":  "flow",
	} {
		if got := route(topic, 1, 8); got != want {
			t.Errorf("route(%q) = %q, want %q", topic, got, want)
		}
	}
	if got := route("__wkf_step_a", 1, entities.SpecFence); got != "flow" {
		t.Errorf("the step of a run with a fence goes to %q, want flow", got)
	}
	for topic, want := range map[string]string{
		"__wkf_workflow_a":           "flow",
		"__wkf_step_a":               "step",
		"__wkf_step_health_check":    "flow",
		"__ns_wkf_step_health_check": "flow",
	} {
		if got := route(topic, 2, 0); got != want {
			t.Errorf("second time: route(%q) = %q, want %q", topic, got, want)
		}
	}
}

func TestDeliveryGoesBelowTheBaseURL(t *testing.T) {
	t.Parallel()
	a := newApp(t, nil)
	r := open(t, testdb.New(t))
	r.worker(t)
	for base, want := range map[string]string{
		a.URL:               "POST /.well-known/workflow/v1/flow",
		a.URL + "/":         "POST /.well-known/workflow/v1/flow",
		a.URL + "/my%20app": "POST /my%20app/.well-known/workflow/v1/flow",
	} {
		r.register(t, deployment, base)
		r.send(t)
		if got := a.next(t).Path; got != want {
			t.Errorf("base URL %s: got %s, want %s", base, got, want)
		}
	}
}

func TestRedeliveriesKeepTheIDAndGetFreshHandles(t *testing.T) {
	t.Parallel()
	a := newApp(t, nil)
	r := start(t, a)
	id := r.send(t)
	handles := map[string]bool{}
	for _, want := range []string{"1", "2", "3", "4"} {
		c := a.next(t)
		if c.id() != id || c.count() != want || string(c.Body) != "body" {
			t.Errorf("got delivery %s of %s, %q; want %s of %s", c.count(), c.id(), c.Body, want, id)
		}
		if handles[c.handle()] {
			t.Errorf("delivery %s has the handle %s of an earlier one", want, c.handle())
		}
		handles[c.handle()] = true
		r.makeDue(t, id) // the lease expires
	}
}

func TestDelayedMessageIsNeverEarly(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	for name, sender := range map[string]*replica{"hinted": open(t, dsn), "unhinted": withoutHints(t, dsn)} {
		early := make(chan time.Duration, 10)
		a := newApp(t, func(_ http.ResponseWriter, r *http.Request, c call) {
			var d time.Duration
			if err := sender.pool.QueryRow(r.Context(), `
				SELECT clock_timestamp() - created_at FROM messages WHERE id = $1`, c.id()).Scan(&d); err != nil {
				t.Error(err)
			}
			sender.ack(t, c)
			early <- d
		})
		sender.register(t, deployment, a.URL)
		w := open(t, dsn).worker(t)
		for _, delay := range []time.Duration{time.Millisecond, 300 * time.Millisecond, 1200 * time.Millisecond} {
			id := sender.send(t, delayed(delay))
			if got, want := sender.Count(t, `SELECT count(*) FROM river_job j JOIN messages m ON m.id = j.args->>'message'
				WHERE m.id = $1 AND j.created_at < m.created_at + $2::interval`, id, delay), 0; got != want {
				t.Errorf("%s: got %d tickets before the delay of %s is over, want %d", name, got, delay, want)
			}
			got := testdb.Receive(t, "the delayed message", early)
			if got < delay {
				t.Errorf("%s: delivered %s after sending, want not before %s", name, got, delay)
			}
			t.Logf("%s: %s late", name, got-delay)
		}
		stop(t, w)
	}
}
