package eventlog

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/entities"
)

// oneIn returns true once in 2^n times. It draws booleans, because rapid draws small numbers far more often.
func oneIn(t *rapid.T, n int, what string) bool {
	for range n {
		if !rapid.Bool().Draw(t, what) {
			return false
		}
	}
	return true
}

// drawElapsed returns how far the clock moves. It mostly advances, sometimes jumps back or far ahead, and is not cut
// to milliseconds.
func drawElapsed(t *rapid.T) time.Duration {
	if oneIn(t, 3, "jump") {
		return time.Duration(rapid.Int64Range(30e9, 10*60e9).Draw(t, "jumped"))
	}
	return time.Duration(rapid.Int64Range(-2e9, 20e9).Draw(t, "passed"))
}

// drawRequest returns a request that is likely to be legal, because it uses few IDs and tokens.
func drawRequest(t *rapid.T, m, other *model) Request {
	events := allEvents[5:]
	switch {
	case m.snapshot.Run == nil:
		events = []entities.EventType{"run_created", "run_created", "run_started", "step_created", "run_failed"}
	case oneIn(t, 4, "a beginning"):
		events = allEvents[:2]
	case oneIn(t, 4, "an end"):
		events = allEvents[2:5]
	case oneIn(t, 1, "about hooks"):
		events = []entities.EventType{"hook_created", "hook_created", "hook_received", "hook_received", "hook_disposed"}
	}
	r := drawEvent(t, m, other, rapid.SampledFrom(events).Draw(t, "event"))
	drawFence(t, m, &r)
	return r
}

// drawFence has the request come from the orchestrator of the run, or from a stale one, if it may have a fence.
func drawFence(t *rapid.T, m *model, r *Request) {
	if m.versions[len(m.versions)-1] < entities.SpecFence || !rapid.Bool().Draw(t, "in-band") {
		return
	}
	r.InBand, r.SeqInBand = true, ptr(int64(1))
	if m.snapshot.Run != nil {
		*r.SeqInBand = m.snapshot.Run.SeqInBand
	}
	if oneIn(t, 3, "stale") {
		*r.SeqInBand--
	}
}

// drawBatch returns requests, most of which are allowed in one batch.
func drawBatch(t *rapid.T, m, other *model) []Request {
	var batch []Request
	for range rapid.IntRange(1, 5).Draw(t, "in the batch") {
		events := allEvents[6:11] // about steps
		switch {
		case oneIn(t, 6, "any"):
			events = allEvents
		case oneIn(t, 5, "an end"):
			events = allEvents[2:4]
		case oneIn(t, 2, "a wait"):
			events = allEvents[14:17]
		case oneIn(t, 1, "a new step"):
			events = allEvents[6:7]
		}
		r := drawEvent(t, m, other, rapid.SampledFrom(events).Draw(t, "event"))
		if r.Type == entities.EventStepStarted && !oneIn(t, 4, "keep the body") {
			r.Payload = nil
		}
		batch = append(batch, r)
		if r.Type == entities.EventStepCreated && rapid.Bool().Draw(t, "claim") {
			batch = append(batch, on(m.id, entities.EventStepStarted, r.CorrelationID))
		}
	}
	return batch
}

// drawEvent returns a request for an event of the type.
func drawEvent(t *rapid.T, m, other *model, event entities.EventType) Request {
	r := on(m.id, event, rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "ID"))
	r.Payload = rapid.SliceOfN(rapid.Byte(), 1, 8).Draw(t, "payload")
	if rapid.Bool().Draw(t, "with clock") {
		r.OccurredAt = ptr(day.Add(time.Duration(rapid.Int64Range(-1e9, 1e9).Draw(t, "occurred"))).Local())
	}
	if event.Kind() == entities.KindHook {
		r.CorrelationID = drawHookID(t, m, event)
	}
	switch event {
	case entities.EventRunCreated, entities.EventRunStarted:
		drawCreation(t, m, &r)
	case entities.EventStepStarted:
		r.Data.StepName = rapid.SampledFrom([]string{"", "charge"}).Draw(t, "step name")
	case entities.EventHookCreated:
		drawHook(t, m, other, &r)
	case entities.EventHookReceived:
		r.Data.ResumeID = rapid.SampledFrom([]string{"", "res_1", "res_2"}).Draw(t, "resumption")
		r.Data.ResumeDigest = rapid.SampledFrom([]string{"d1", "d1", "d2"}).Draw(t, "digest")
	case entities.EventStepRetrying:
		if rapid.Bool().Draw(t, "later") {
			r.Data.RetryAfter = ptr(m.at.Add(time.Duration(rapid.Int64Range(-5e9, 60e9).Draw(t, "retry after"))))
		}
	case entities.EventRunCompleted:
		r.CorrelationID = ""
	case entities.EventRunCancelled:
		r.CorrelationID, r.AsAsked = "", rapid.Bool().Draw(t, "as asked")
	case entities.EventCancelRequested:
		r.CorrelationID = ""
		r.Grace = time.Duration(rapid.Int64Range(0, 100e9).Draw(t, "grace"))
		r.Data.ErrorCode = rapid.SampledFrom([]string{"", "timeout"}).Draw(t, "timed out")
	case entities.EventRunFailed:
		r.Data.ErrorCode = rapid.SampledFrom([]string{"", "USER_ERROR"}).Draw(t, "code")
	case entities.EventAttrSet:
		r.Data.Changes[0].Key = rapid.SampledFrom([]string{"x", "y", "$z"}).Draw(t, "key")
		r.Data.AllowReserved = rapid.Bool().Draw(t, "reserved")
		if rapid.Bool().Draw(t, "remove") {
			r.Data.Changes[0].Value = nil
		}
	case entities.EventStoreSet:
		r.Payload = []byte(rapid.SampledFrom([]string{
			`{"x":1}`, `{"y":"<\u0000>"}`, `{"x":null,"y":[ 1, 2 ]}`, `{"x":{"a":1},"z":2}`, `{}`, `x`,
		}).Draw(t, "values"))
		r.Data.StepName = rapid.SampledFrom([]string{"", "charge"}).Draw(t, "by a step")
	default: // the others need no data
	}
	return r
}

// drawHookID mostly returns the ID of an existing hook, unless the event creates one.
func drawHookID(t *rapid.T, m *model, event entities.EventType) string {
	var ids []string
	for id := range m.snapshot.Hooks {
		ids = append(ids, string(id))
	}
	if event == entities.EventHookCreated || len(ids) == 0 || oneIn(t, 3, "another hook") {
		return rapid.StringMatching("hook_[1-9]{2}").Draw(t, "hook")
	}
	slices.Sort(ids)
	return rapid.SampledFrom(ids).Draw(t, "one of its hooks")
}

func drawCreation(t *rapid.T, m *model, r *Request) {
	r.Data, r.CorrelationID = runCreated(m.id).Data, ""
	r.SpecVersion = rapid.SampledFrom(m.versions).Draw(t, "version")
	r.Data.Attributes = rapid.SampledFrom([]map[string]string{
		nil, {}, {"x": "0", "y": ""}, {"$z": "0"},
	}).Draw(t, "attributes")
	r.Data.AllowReserved = !oneIn(t, 2, "no leave")
	r.Data.Driver = rapid.SampledFrom([]entities.Driver{entities.DriverClient, entities.DriverServer}).Draw(t, "driver")
}

func drawHook(t *rapid.T, m, other *model, r *Request) {
	r.Data.Token = rapid.SampledFrom([]string{"S ", "T "}).Draw(t, "token") + string(min(m.id, other.id))
	r.Data.IsWebhook = rapid.SampledFrom([]*bool{nil, ptr(true), ptr(false)}).Draw(t, "webhook")
	r.Data.IsSystem = rapid.SampledFrom([]*bool{nil, ptr(true), ptr(false)}).Draw(t, "system")
	switch {
	case oneIn(t, 5, "too long"):
		r.Data.TokenRetentionUntil = ptr(m.at.Add(31 * 24 * time.Hour))
	case !oneIn(t, 2, "no retention"):
		until := rapid.SampledFrom([]time.Duration{time.Minute, 90 * time.Second, 5 * time.Minute, time.Second, 0, -time.Hour})
		r.Data.TokenRetentionUntil = ptr(m.at.Add(until.Draw(t, "retained")))
	}
}
