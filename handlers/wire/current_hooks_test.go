package wire_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// takeoverMeta is the metadata of a hook_created that may take its token over.
func takeoverMeta(hookID, token string) []field {
	return []field{ofCurrent, {"correlationId", hookID}, {"hookToken", token}, {"hookIsWebhook", false}, {"hookForce", true}}
}

// TestTakeoverOfHookToken: the answers, both logs and all reads of the hook (§3.16).
func TestTakeoverOfHookToken(t *testing.T) {
	t.Parallel()
	for how, claim := range map[string]func(*testing.T, client, string) map[string]any{
		"an event": func(t *testing.T, c client, id string) map[string]any {
			return c.must(t, id, "hook_created", nil, takeoverMeta("hook_2", "tok")...)
		},
		"a commit": func(t *testing.T, c client, id string) map[string]any {
			return c.results(t, commitHead(t, id), framed(t, "hook_created", "", takeoverMeta("hook_2", "tok")...))[0]
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			c := client{newServer(t), current}
			victim, claimer := c.newRunCurrent(t), c.newRunCurrent(t)
			plain := c.must(t, victim, "hook_created", nil, takeoverMeta("hook_1", "tok")...)
			check.Equal(t, "a free token", plain["event"].(map[string]any)["eventData"],
				any(map[string]any{"token": "tok", "isWebhook": false, "force": true}))

			got := claim(t, c, claimer)
			from := map[string]any{
				"runId": victim, "hookId": "hook_1", "workflowName": "workflow//./a//b", "deploymentId": "dpl_x",
				"runSpecVersion": uint64(8),
			}
			event := got["event"].(map[string]any)
			check.Equal(t, "type", event["eventType"], any("hook_created"))
			check.Equal(t, "data", event["eventData"],
				any(map[string]any{"token": "tok", "isWebhook": false, "force": true, "forceClaimedFrom": from}))
			check.Equal(t, "hook", got["hook"].(map[string]any)["claimedFrom"], any(from))
			for _, path := range []string{
				"/v2/hooks/by-token?token=tok", "/v2/hooks/hook_2", "/v2/hooks?remoteRefBehavior=lazy&runId=" + claimer,
			} {
				read := c.get(t, path).cbor(t)
				if list, ok := read["data"].([]any); ok {
					read = list[0].(map[string]any)
				}
				check.Equal(t, path, []any{read["hookId"], read["claimedFrom"]}, []any{"hook_2", from})
			}
			by := map[string]any{"runId": claimer, "hookId": "hook_2"}
			log := c.log(t, victim)
			last := log[len(log)-1].meta
			check.Equal(t, "the victim's log", []any{last["eventType"], last["correlationId"], last["eventData"]},
				[]any{"hook_disposed", "hook_1", map[string]any{"token": "tok", "forceClaimedBy": by}})

			c.wantClaimed(t, victim, by)
			c.must(t, claimer, "hook_received", []byte("devl[1]"), ofCurrent, field{"correlationId", "hook_2"}, field{"resumeId", "r"})
		})
	}
}

// wantClaimed checks that nothing is received for hook_1 of the run any more, by events and by commits.
func (c client) wantClaimed(t *testing.T, runID string, by map[string]any) {
	t.Helper()
	resume := []field{ofCurrent, {"correlationId", "hook_1"}, {"resumeId", "r"}, {"resumePayloadDigest", "d"}}
	got := c.post(t, runID, "hook_received", []byte("devl[1]"), resume...)
	var body struct {
		Code, Message string
		ClaimedBy     map[string]any
	}
	if err := json.Unmarshal(got.body, &body); err != nil || got.status != http.StatusConflict ||
		body.Code != "hook-force-claimed" || body.Message == "" || !cmp.Equal(body.ClaimedBy, by) {
		t.Errorf("a payload for the old hook: got %d %s, want a 409 that says %v has the token", got.status, got.body, by)
	}
	item := c.results(t, commitHead(t, runID), framed(t, "hook_received", "devl[1]", resume...))[0]
	check.Equal(t, "in a commit", []any{item["status"], item["error"], item["claimedBy"]},
		[]any{uint64(http.StatusConflict), "hook-force-claimed", by})
}

// TestRefusedTakeovers: of a run whose client does not know them, and the repetition of one.
func TestRefusedTakeovers(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), current}
	old, claimer := c.newRunNext(t), c.newRunCurrent(t)
	c.must(t, old, "hook_created", nil, ofCurrent, field{"correlationId", "hook_1"}, field{"hookToken", "tok"})
	got := c.must(t, claimer, "hook_created", nil, takeoverMeta("hook_2", "tok")...)
	event := got["event"].(map[string]any)
	check.Equal(t, "the victim's version counts, not that of its events", []any{event["eventType"], event["eventData"], got["hook"]},
		[]any{"hook_conflict", map[string]any{
			"token": "tok", "conflictingRunId": old, "forceRefusedReason": "victim-spec-version",
		}, nil})

	c.must(t, claimer, "hook_created", nil, takeoverMeta("hook_3", "mine")...)
	wantProblem(t, c.post(t, claimer, "hook_created", nil, takeoverMeta("hook_3", "mine")...), http.StatusConflict, "conflict")
	other := c.newRunCurrent(t)
	c.must(t, other, "hook_created", nil, takeoverMeta("hook_4", "mine")...)
	wantProblem(t, c.post(t, claimer, "hook_created", nil, takeoverMeta("hook_3", "mine")...), http.StatusConflict, "conflict")
	held := c.get(t, "/v2/hooks/by-token?token="+url.QueryEscape("mine")).cbor(t)
	check.Equal(t, "who has the token", held["runId"], any(other))

	// The repetition of a commit succeeds, with the event that it wrote.
	key := append(takeoverMeta("hook_5", "mine"), field{"writeKey", "k"})
	first := c.results(t, commitHead(t, claimer), framed(t, "hook_created", "", key...))[0]
	again := c.results(t, commitHead(t, claimer, repeated), framed(t, "hook_created", "", key...))[0]
	check.Equal(t, "repeated", again["event"], first["event"])
}

// TestMetadataCannotClaimATakeover: only the server says of a hook that it has lost or taken a token.
func TestMetadataCannotClaimATakeover(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), current}
	id := c.newRunCurrent(t)
	names := []string{"force", "forceClaimedFrom", "forceClaimedBy", "forceRefusedReason"}
	fields := []field{ofCurrent, {"correlationId", "hook_1"}, {"hookToken", "tok"}}
	for _, name := range names {
		fields = append(fields, field{name, map[string]any{"runId": id, "hookId": "hook_1"}})
	}
	c.must(t, id, "hook_created", nil, fields...)
	c.must(t, id, "hook_disposed", nil, fields...)
	for _, e := range c.log(t, id)[2:] {
		for _, name := range names {
			if v, ok := e.meta["eventData"].(map[string]any)[name]; ok {
				t.Errorf("%s has %s: %v", e.meta["eventType"], name, v)
			}
		}
	}
	wantProblem(t, c.post(t, id, "hook_received", nil, fields[:2]...), http.StatusNotFound, "hook_not_found")
}
