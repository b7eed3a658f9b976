package rest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestOutcomes: the timeline and the hooks of a run say what was decided, and by whom to those who see payloads. A vote
// after the time does not count, and large payloads are not read.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	run := a.driven(t, "w")
	path := "/v1/runs/" + string(run)
	votes := func(id string, all ...string) {
		for _, vote := range all {
			a.event(t, run, entities.EventHookReceived, on(id), with(vote), data(func(d *entities.EventData) { d.Verified = "vote" }))
		}
	}
	a.approval(t, run, "agree", `{"title":"t","quorum":2}`)
	votes("agree", `{"decision":"approve","by":"anna"}`, `{"decision":"approve","by":"bob"}`)
	a.approval(t, run, "refuse", `{"title":"t","quorum":2}`)
	votes("refuse", `{"decision":"approve","by":"anna"}`, `{"decision":"reject","by":"zoe"}`)
	a.approval(t, run, "late", `{"title":"t"}`)
	until := t0.Add(time.Hour)
	a.event(t, run, entities.EventWaitCreated, on("late~within"), data(func(d *entities.EventData) { d.ResumeAt = &until }))
	a.event(t, run, entities.EventWaitCompleted, on("late~within"))
	votes("late", `{"decision":"approve","by":"anna"}`)
	a.approval(t, run, "open", `{"title":"t"}`)
	ask := func(id, metadata string) {
		a.event(t, run, entities.EventHookCreated, on(id), token(id, false), with(metadata))
	}
	ask("asked", `{"question":"May I?"}`)
	votes("asked", `{"approved":true,"by":"anna"}`)
	ask("expired", `{"question":"May I?","expiresAt":"2026-11-21T01:00:00Z"}`)
	a.event(t, run, entities.EventHookDisposed, on("expired"))
	ask("plain", `{"schema":{}}`)
	votes("plain", `{"approved":true,"by":"anna"}`)
	ask("large", `{"question":"`+strings.Repeat("x", 1<<20)+`"}`)
	votes("large", `{"approved":true}`)
	outcomes := func(address, key string) object {
		page := a.sendAs(t, key, http.MethodGet, address, "", http.StatusOK)
		all := object{}
		for _, item := range page["data"].([]any) {
			if part := item.(object); part["outcome"] != nil {
				all[part["id"].(string)] = part["outcome"]
			}
		}
		return all
	}
	want := `{"agree":{"decision":"approved","by":["anna","bob"]},"refuse":{"decision":"rejected","by":["zoe"]},
		"late":{"decision":"expired"},"asked":{"decision":"approved","by":["anna"]},"expired":{"decision":"expired"}}`
	same(t, "timeline", want, outcomes(path+"/timeline", ""))
	same(t, "hooks", want, outcomes(path+"/hooks", ""))
	same(t, "one hook", `{"decision":"rejected","by":["zoe"]}`, a.get(t, path+"/hooks/refuse")["outcome"])
	reader := a.key(t, "", `{"name":"k","role":"metadata"}`)["key"].(string)
	nameless := `{"agree":{"decision":"approved"},"refuse":{"decision":"rejected"},"late":{"decision":"expired"},
		"asked":{"decision":"approved"},"expired":{"decision":"expired"}}`
	same(t, "timeline without payloads", nameless, outcomes(path+"/timeline", reader))
	same(t, "hooks without payloads", nameless, outcomes(path+"/hooks", reader))
}
