package handlers

import (
	"net/http"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// testRequest is a valid request to a route. Its path, body and headers may have {placeholders} for IDs of a [fixture].
type testRequest struct {
	route string // method and path, as registered
	path  string // with the query
	// body is JSON. For /sdk, the prefix "cbor " sends it as CBOR, and "frame " several objects as frames.
	body   string
	header []string
	// foreign is the status for a key of another project that has the permission: 404, unless the route is a list, which
	// is then empty, or creates something in the key's own project.
	foreign int
	// operators means that the route is for operators only.
	operators bool
	// programs means that sessions of the dashboard are refused, whatever their role.
	programs bool
	// needs is the permission for this request, if not all who have that of the route may make it.
	needs auth.Permission
	// endless means that the response ends only when the client disconnects.
	endless bool
}

// permission returns the permission that the request needs; by route, they are those of the routes.
func (tr testRequest) permission(byRoute map[string]auth.Permission) auth.Permission {
	if tr.needs != "" {
		return tr.needs
	}
	return byRoute[tr.route]
}

// names reports whether the request has one of the placeholders.
func (tr testRequest) names(placeholders ...string) bool {
	text := strings.Join(slices.Concat(tr.header, []string{tr.path, tr.body}), " ")
	return slices.ContainsFunc(placeholders, func(p string) bool { return strings.Contains(text, "{"+p+"}") })
}

const topic = "/sdk/queues-proxy/api/v3/topic/"

var toApp = []string{"Vqs-Deployment-Id", "{deployment}", "Content-Type", "application/json"}

// testRequests cover every route that requires a key.
var testRequests = []testRequest{
	{route: "POST /v1/runs", body: `{"workflow":"order","deployment":"{deployment}"}`, foreign: 404},
	{
		route: "POST /v1/runs", body: `{"workflow":"order","deployment":"{deployment}","idempotencyKey":"{idem}","input":"classified"}`,
		foreign: 404,
	},
	{
		route: "POST /v1/runs", body: `{"workflow":"order","deployment":"{deployment}","key":"{unique}","onConflict":"join"}`,
		foreign: 404,
	},
	{
		route: "POST /v1/runs", body: `{"workflow":"order","deployment":"{deployment}","input":"classified",
			"batch":{"key":"{unique}","size":1000,"wait":"1h"}}`, foreign: 404,
	},
	{route: "GET /v1/runs/:id", path: "/v1/runs/{collection}", foreign: 404},
	{route: "GET /v1/runs/:id/wait", path: "/v1/runs/{collection}/wait?timeout=0s", foreign: 404},
	{route: "GET /v1/runs", foreign: 200},
	{route: "GET /v1/runs", path: "/v1/runs?parentId={run}", foreign: 200},
	{route: "GET /v1/runs", path: "/v1/runs?orderBy=ended&status=completed&status=failed&deployment={deployment}", foreign: 200},
	{route: "GET /v1/runs/count", foreign: 200},
	{route: "GET /v1/archive/runs", foreign: 200},
	{route: "GET /v1/archive/runs/:id", path: "/v1/archive/runs/{done}", foreign: 404},
	{route: "GET /v1/archive/runs/:id/events", path: "/v1/archive/runs/{done}/events", foreign: 404},
	{route: "GET /v1/search", path: "/v1/search?text=order", foreign: 200},
	{route: "GET /v1/runs/needs", foreign: 200},
	{route: "GET /v1/runs/:id", path: "/v1/runs/{run}", foreign: 404},
	{route: "GET /v1/runs/:id", path: "/v1/runs/{done}", foreign: 404},
	{route: "GET /v1/runs/:id", path: "/v1/runs/{failed}", foreign: 404},
	{route: "GET /v1/runs/:id/wait", path: "/v1/runs/{done}/wait?timeout=0s", foreign: 404},
	{route: "GET /v1/runs/:id/why", path: "/v1/runs/{run}/why", foreign: 404},
	{route: "GET /v1/runs/:id/why", path: "/v1/runs/{driven}/why", foreign: 404},
	{route: "GET /v1/runs/:id/why", path: "/v1/runs/{failed}/why", foreign: 404},
	{route: "GET /v1/runs/:id/attributes", path: "/v1/runs/{run}/attributes", foreign: 404},
	{route: "PATCH /v1/runs/:id/attributes", path: "/v1/runs/{run}/attributes", body: `{"attributes":{"a":"b"}}`, foreign: 404},
	{route: "GET /v1/runs/:id/graph", path: "/v1/runs/{flowRun}/graph", foreign: 404},
	{route: "GET /v1/runs/:id/counts", path: "/v1/runs/{run}/counts", foreign: 404},
	{route: "GET /v1/runs/:id/children", path: "/v1/runs/{run}/children", foreign: 404},
	{route: "POST /v1/runs/:id/cancel", path: "/v1/runs/{run}/cancel", foreign: 404},
	{route: "POST /v1/runs/cancel", body: `{"parentId":"{run}"}`, foreign: 200},
	{route: "POST /v1/runs/cancel", body: `{"workflow":"order"}`, foreign: 200},
	{route: "POST /v1/runs/:id/shred", path: "/v1/runs/{done}/shred", foreign: 404},
	{route: "POST /v1/runs/:id/rerun", path: "/v1/runs/{done}/rerun", foreign: 404},
	{route: "POST /v1/runs/rerun", body: `{"filter":{"workflow":"order"},"idempotencyKey":"{run}"}`, foreign: 200},
	{
		route: "POST /v1/runs/:id/commands", path: "/v1/runs/{driven}/commands", header: []string{"Stepwell-Invocation", "{lease}"},
		body: `{"commands":[{"type":"setAttributes","attributes":{"a":"b"}}]}`, foreign: 404,
	},
	{
		route: "POST /v1/runs/:id/call/keep", path: "/v1/runs/{driven}/call/keep", header: []string{"Stepwell-Invocation", "{lease}"},
		foreign: 404,
	},
	{
		route: "POST /v1/runs/:id/call/heartbeat", path: "/v1/runs/{driven}/call/heartbeat",
		header: []string{"Stepwell-Invocation", "{lease}"}, body: `{"progress":"classified"}`, foreign: 404,
	},
	{
		route: "POST /v1/runs/:id/call/stream", path: "/v1/runs/{driven}/call/stream",
		header: []string{"Stepwell-Invocation", "{lease}"}, body: `{"stream":"{stream}","chunks":["classified"]}`, foreign: 404,
	},
	{
		route: "POST /v1/runs", body: `{"workflow":"order","deployment":"{deployment}","inbox":["notes"],"send":[{"inbox":"notes","payload":1}]}`,
		foreign: 404,
	},
	{route: "POST /v1/runs/:id/inbox/:name", path: "/v1/runs/{driven}/inbox/notes", body: `{"payload":"classified"}`, foreign: 404},
	{
		route: "POST /v1/runs/:id/steps/:stepId/result", path: "/v1/runs/{driven}/steps/async/result", body: `{"output":"classified"}`,
		foreign: 404,
	},
	{route: "GET /v1/runs/:id/store", path: "/v1/runs/{driven}/store", foreign: 404},
	{route: "GET /v1/runs/:id/store/:key", path: "/v1/runs/{driven}/store/secret", foreign: 404},
	{route: "GET /v1/runs/:id/steps", path: "/v1/runs/{run}/steps", foreign: 404},
	{route: "GET /v1/runs/:id/steps/:stepId", path: "/v1/runs/{run}/steps/{step}", foreign: 404},
	{route: "GET /v1/runs/:id/steps/:stepId", path: "/v1/runs/{run}/steps/{broken}", foreign: 404},
	{route: "GET /v1/hooks", foreign: 200},
	{route: "GET /v1/hooks", path: "/v1/hooks?workflow=order&olderThan=0s", foreign: 200},
	{route: "GET /v1/approvals", foreign: 200},
	{route: "GET /v1/approvals", path: "/v1/approvals?runId={run}", foreign: 200},
	{route: "GET /v1/waits", foreign: 200},
	{route: "GET /v1/runs/:id/hooks", path: "/v1/runs/{run}/hooks", foreign: 404},
	{route: "GET /v1/runs/:id/hooks/:hookId", path: "/v1/runs/{run}/hooks/{hook}", foreign: 404},
	{route: "POST /v1/hooks/:token/resume", path: "/v1/hooks/{token}/resume", body: `{"payload":1}`, foreign: 404},
	{
		route: "POST /v1/runs/:id/hooks/:hookId/resume", path: "/v1/runs/{run}/hooks/{hook}/resume", body: `{"payload":1}`,
		foreign: 404,
	},
	{route: "GET /v1/runs/:id/waits", path: "/v1/runs/{run}/waits", foreign: 404},
	{route: "GET /v1/runs/:id/streams", path: "/v1/runs/{run}/streams", foreign: 404},
	{route: "GET /v1/runs/:id/streams/:name", path: "/v1/runs/{run}/streams/{stream}", foreign: 404},
	{route: "GET /v1/runs/:id/streams/:name/tail", path: "/v1/runs/{run}/streams/{stream}/tail", foreign: 404, endless: true},
	{route: "GET /v1/runs/:id/events", path: "/v1/runs/{run}/events", foreign: 404},
	{route: "GET /v1/runs/:id/events/stream", path: "/v1/runs/{done}/events/stream", foreign: 404, endless: true},
	{route: "GET /v1/runs/:id/events/:seq", path: "/v1/runs/{run}/events/1", foreign: 404},
	{route: "GET /v1/runs/:id/events/:seq", path: "/v1/runs/{run}/events/{hookSeq}", foreign: 404},
	{route: "GET /v1/runs/:id/events/:seq/payload", path: "/v1/runs/{run}/events/1/payload", foreign: 404},
	{route: "GET /v1/runs/:id/timeline", path: "/v1/runs/{run}/timeline", foreign: 404},
	{route: "GET /v1/runs/:id/timeline/names", path: "/v1/runs/{run}/timeline/names", foreign: 404},
	{route: "GET /v1/events", foreign: 200},
	{route: "GET /v1/events", path: "/v1/events?runId={run}", foreign: 200},
	{route: "GET /v1/events/stream", path: "/v1/events/stream?after=0", foreign: 200, endless: true},
	{route: "GET /v1/live", path: "/v1/live?topics=true", foreign: 200, endless: true},
	{route: "GET /v1/live", path: "/v1/live?runs=true", needs: auth.Metadata, foreign: 200, endless: true},
	{route: "GET /v1/live", path: "/v1/live?run={run}", needs: auth.Metadata, foreign: 404, endless: true},
	{route: "POST /v1/signals/:name", path: "/v1/signals/paid", body: `{"data":1}`, foreign: 202},
	{route: "POST /v1/signals/:name", path: "/v1/signals/paid", body: `{"id":"{signalKey}","data":1}`, foreign: 202},
	{route: "GET /v1/signals", foreign: 200},
	{route: "GET /v1/stats/runs", foreign: 200},
	{route: "GET /v1/stats/steps", foreign: 200},
	{route: "GET /v1/stats/failures", foreign: 200},
	{route: "GET /v1/failures", foreign: 200},
	{route: "GET /v1/workflows", foreign: 200},
	{route: "GET /v1/flows", foreign: 200},
	{route: "POST /v1/flows", body: `{"document":"flow: new-{flow}\nsteps: {a: {set: 1}}"}`, foreign: 201},
	{route: "GET /v1/flows/:name", path: "/v1/flows/{flow}", foreign: 404},
	{route: "GET /v1/flows/:name/graph", path: "/v1/flows/{flow}/graph", foreign: 404},
	{route: "PUT /v1/flows/:name/aliases/:alias", path: "/v1/flows/{flow}/aliases/prod", body: `{"version":2}`, foreign: 404},
	{route: "DELETE /v1/flows/:name/aliases/:alias", path: "/v1/flows/{flow}/aliases/spare", foreign: 404},
	{route: "GET /v1/catalogs", foreign: 200},
	{route: "POST /v1/catalogs", body: `{"document":"catalog: new-goals-{flow}\nsteps: {a: {set: 1}}"}`, foreign: 201},
	{route: "GET /v1/catalogs/:name", path: "/v1/catalogs/goals-{flow}", foreign: 404},
	{route: "POST /v1/catalogs/:name/preview", path: "/v1/catalogs/goals-{flow}/preview", body: `{"want":["b"]}`, foreign: 404},
	{route: "POST /v1/flows/:name/versions/:version/retire", path: "/v1/flows/{flow}/versions/1/retire", foreign: 404},
	{route: "GET /v1/collections", foreign: 200},
	{route: "GET /v1/collections/:id", path: "/v1/collections/{collection}", foreign: 404},
	{route: "POST /v1/collections/:id/flush", path: "/v1/collections/{flushedCollection}/flush", foreign: 404},
	{route: "DELETE /v1/collections/:id", path: "/v1/collections/{spareCollection}", foreign: 404},
	{route: "GET /v1/schedules", foreign: 200},
	{route: "GET /v1/schedules/:name", path: "/v1/schedules/{schedule}", foreign: 404},
	{
		route: "PUT /v1/schedules/:name", path: "/v1/schedules/{schedule}",
		body: `{"every":"1h","workflow":"order","deployment":"{deployment}","input":"classified"}`, foreign: 404,
	},
	{route: "DELETE /v1/schedules/:name", path: "/v1/schedules/{spareSchedule}", foreign: 404},
	{route: "POST /v1/schedules/:name/pause", path: "/v1/schedules/{schedule}/pause", body: `{"note":"n"}`, foreign: 404},
	{route: "POST /v1/schedules/:name/resume", path: "/v1/schedules/{schedule}/resume", foreign: 404},
	{route: "POST /v1/schedules/:name/trigger", path: "/v1/schedules/{schedule}/trigger", foreign: 404},
	{
		route: "POST /v1/schedules/:name/backfill", path: "/v1/schedules/{schedule}/backfill",
		body: `{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T02:00:00Z"}`, foreign: 404,
	},
	{route: "DELETE /v1/schedules/:name/backfill", path: "/v1/schedules/{schedule}/backfill", foreign: 404},
	{route: "GET /v1/schedules/:name/ticks", path: "/v1/schedules/{schedule}/ticks", foreign: 404},
	{route: "GET /v1/triggers", foreign: 200},
	{route: "GET /v1/triggers/:name", path: "/v1/triggers/{trigger}", foreign: 404},
	{
		route: "PUT /v1/triggers/:name", path: "/v1/triggers/{trigger}",
		body:    `{"on":{"webhook":{"condition":"data != 'classified'"}},"start":{"workflow":"order","deployment":"{deployment}","input":"classified"}}`,
		foreign: 404,
	},
	{route: "DELETE /v1/triggers/:name", path: "/v1/triggers/{spareTrigger}", foreign: 404},
	{route: "POST /v1/triggers/:name/pause", path: "/v1/triggers/{trigger}/pause", body: `{"note":"n"}`, foreign: 404},
	{route: "POST /v1/triggers/:name/resume", path: "/v1/triggers/{trigger}/resume", foreign: 404},
	{route: "GET /v1/triggers/:name/history", path: "/v1/triggers/{trigger}/history", foreign: 404},
	{route: "GET /v1/limits", foreign: 200},
	{route: "GET /v1/limits/:name", path: "/v1/limits/{limit}", foreign: 404},
	{route: "PUT /v1/limits/:name", path: "/v1/limits/mail", body: `{"perKey":1}`, foreign: 200},
	{route: "DELETE /v1/limits/:name", path: "/v1/limits/{spareLimit}", foreign: 404},
	{route: "GET /v1/limits/:name/keys", path: "/v1/limits/{limit}/keys", foreign: 404},
	{route: "GET /v1/limits/:name/slots", path: "/v1/limits/{limit}/slots?key=k", foreign: 404},
	{route: "GET /v1/policies", foreign: 200},
	{route: "GET /v1/policies/:workflow", path: "/v1/policies/{policy}", foreign: 404},
	{route: "PUT /v1/policies/:workflow", path: "/v1/policies/{policy}", body: `{"limits":[{"name":"{limit}"}]}`, foreign: 404},
	{route: "DELETE /v1/policies/:workflow", path: "/v1/policies/{sparePolicy}", foreign: 404},
	{route: "GET /v1/stats/now", foreign: 200},
	{route: "GET /v1/attention", foreign: 200},
	{route: "GET /v1/deployments", foreign: 200},
	{route: "GET /v1/deployments/:id", path: "/v1/deployments/{deployment}", foreign: 404},
	{route: "PUT /v1/deployments/:id", path: "/v1/deployments/{deployment}", body: `{"url":"http://theirs.test"}`, foreign: 200},
	{route: "PATCH /v1/deployments/:id", path: "/v1/deployments/{deployment}", body: `{"url":"http://theirs.test"}`, foreign: 200}, // it has just put it
	{route: "GET /v1/pauses", foreign: 200},
	{route: "PUT /v1/pauses/:kind/:name", path: "/v1/pauses/deployment/{spare}", body: `{"note":"n"}`, foreign: 404},
	{route: "DELETE /v1/pauses/:kind/:name", path: "/v1/pauses/deployment/{paused}", foreign: 404},
	{route: "POST /v1/deployments/:id/check", path: "/v1/deployments/{spare}/check", body: `{"limit":1}`, foreign: 404},
	{route: "DELETE /v1/deployments/:id", path: "/v1/deployments/{spare}", foreign: 404},
	{route: "POST /v1/work", body: `{"deployment":"app-worker","worker":"w","slots":1,"calls":["rh_none"]}`, foreign: 200},
	{route: "GET /v1/secrets", foreign: 200},
	{route: "PUT /v1/secrets/:name", path: "/v1/secrets/{secret}", body: `{"values":["theirs"]}`, foreign: 200},
	{route: "DELETE /v1/secrets/:name", path: "/v1/secrets/{spareSecret}", foreign: 404},
	{route: "GET /v1/signing-keys", foreign: 200},
	{route: "POST /v1/signing-keys", foreign: 201},
	{route: "DELETE /v1/signing-keys/:id", path: "/v1/signing-keys/{signingKey}", foreign: 404},
	{route: "GET /v1/messages", foreign: 200},
	{route: "GET /v1/messages", path: "/v1/messages?runId={run}", foreign: 200},
	{route: "GET /v1/messages", path: "/v1/messages?state=retrying&deployment={deployment}&work=step", foreign: 200},
	{route: "GET /v1/messages/count", foreign: 200},
	{route: "POST /v1/messages/retry", body: `{"runId":"{run}"}`, foreign: 200},
	{route: "POST /v1/messages/discard", body: `{"runId":"{run}"}`, foreign: 200},
	{route: "GET /v1/messages/:id", path: "/v1/messages/{parked}", foreign: 404},
	{route: "POST /v1/messages/:id/retry", path: "/v1/messages/{parked}/retry", foreign: 404},
	{route: "DELETE /v1/messages/:id", path: "/v1/messages/{parked}", foreign: 404},
	{route: "GET /v1/whoami", foreign: 200},
	{route: "GET /v1/keys", foreign: 200},
	{route: "POST /v1/keys", body: `{"name":"k","role":"read"}`, foreign: 201},
	{route: "GET /v1/keys/:id", path: "/v1/keys/{key}", foreign: 404},
	{route: "DELETE /v1/keys/:id", path: "/v1/keys/{key}", foreign: 404},
	{route: "GET /v1/projects", operators: true},
	{route: "PUT /v1/projects/:name", path: "/v1/projects/new", operators: true},
	{route: "GET /v1/audit", foreign: 200},
	{route: "GET /v1/audit", path: "/v1/audit?subject={key}", foreign: 200},
	{route: "GET /v1/servers", operators: true},
	{route: "POST /v1/ui/codes", foreign: 201, programs: true},
	{route: "GET /v1/ui/sessions", foreign: 200},
	{route: "DELETE /v1/ui/sessions/:id", path: "/v1/ui/sessions/{session}", foreign: 404},

	{
		route: "POST /sdk/v4/runs/:runId/events/:eventType", path: "/sdk/v4/runs/{run}/events/step_started",
		body: `frame {"eventType":"step_started","specVersion":3,"correlationId":"{step}"}`, foreign: 404,
	},
	{
		route: "POST /sdk/v4/runs/:runId/events/:eventType", path: "/sdk/v4/runs/{run}/events/run_cancelled",
		body: `frame {"eventType":"run_cancelled","specVersion":3}`, foreign: 404,
	},
	{
		route: "POST /sdk/v4/runs/:runId/events/batch", path: "/sdk/v4/runs/{run}/events/batch",
		body: `frame {"eventType":"step_started","specVersion":3,"correlationId":"{step}"}`, foreign: 404,
	},
	{
		route: "POST /sdk/world/v1/commit", header: []string{"Stepwell-World", "1"}, foreign: 200,
		body: `frame {"world":1,"runId":"{run}"}` +
			`{"eventType":"step_started","specVersion":3,"correlationId":"{step}"} {"_end":1}`,
	},
	{
		route: "POST /sdk/world/v1/commit", header: []string{"Stepwell-World", "1"}, foreign: 200,
		body: `frame {"world":1} {"_end":1,"ack":true,"topic":"{topic}","receipt":"{receipt}"}`,
	},
	{
		route: "POST /sdk/world/v1/pull", header: []string{"Stepwell-World", "1"}, foreign: 200,
		body: `cbor {"world":1,"deployment":"dpl_asks","asked":true,"slots":1,"waitMs":0,"receipts":["{receipt}"]}`,
	},
	{
		route: "POST /sdk/v5/runs/:runId/events/:eventType", path: "/sdk/v5/runs/{run}/events/step_started",
		body: `frame {"eventType":"step_started","specVersion":9,"correlationId":"{step}"}`, foreign: 404,
	},
	{
		route: "POST /sdk/v5/runs/:runId/events/batch", path: "/sdk/v5/runs/{run}/events/batch",
		body: `frame {"eventType":"step_started","specVersion":9,"correlationId":"{step}"}`, foreign: 404,
	},
	{route: "GET /sdk/v5/runs/:runId/events", path: "/sdk/v5/runs/{run}/events", foreign: 404},
	{route: "GET /sdk/v5/runs/:runId/events/:eventId", path: "/sdk/v5/runs/{run}/events/{event}", foreign: 404},
	{route: "GET /sdk/v4/runs/:runId/events", path: "/sdk/v4/runs/{run}/events", foreign: 404},
	{route: "GET /sdk/v4/runs/:runId/events/:eventId", path: "/sdk/v4/runs/{run}/events/{event}", foreign: 404},
	{route: "GET /sdk/v4/events", path: "/sdk/v4/events?correlationId={step}", foreign: 200},
	{route: "GET /sdk/v2/runs", foreign: 200},
	{route: "GET /sdk/v2/runs/:runId", path: "/sdk/v2/runs/{run}", foreign: 404},
	{route: "GET /sdk/v2/runs/:runId/status", path: "/sdk/v2/runs/{done}/status", foreign: 404},
	{
		route: "POST /sdk/v2/runs/:runId/attributes", path: "/sdk/v2/runs/{run}/attributes",
		body: `cbor {"changes":[{"key":"a","value":"b"}]}`, foreign: 404,
	},
	{route: "POST /sdk/v4/runs/cancel", body: `cbor {"runIds":["{run}"]}`, foreign: 200},
	{route: "GET /sdk/v2/runs/:runId/steps", path: "/sdk/v2/runs/{run}/steps", foreign: 200},
	{route: "GET /sdk/v2/runs/:runId/steps/:stepId", path: "/sdk/v2/runs/{run}/steps/{step}", foreign: 404},
	{route: "GET /sdk/v2/steps/:stepId", path: "/sdk/v2/steps/{step}", foreign: 404},
	{route: "GET /sdk/v2/hooks", foreign: 200},
	{route: "GET /sdk/v2/hooks/by-token", path: "/sdk/v2/hooks/by-token?token={token}", foreign: 404},
	{route: "GET /sdk/v2/hooks/:hookId", path: "/sdk/v2/hooks/{hook}", foreign: 404},

	{route: "GET /sdk/v2/analytics/runs", foreign: 200},
	{route: "GET /sdk/v2/analytics/runs/:runId", path: "/sdk/v2/analytics/runs/{run}", foreign: 404},
	{route: "GET /sdk/v2/analytics/runs/:runId", path: "/sdk/v2/analytics/runs/{failed}", foreign: 404},
	{route: "GET /sdk/v2/analytics/runs/:runId/steps", path: "/sdk/v2/analytics/runs/{run}/steps", foreign: 404},
	{route: "GET /sdk/v2/analytics/runs/:runId/steps/:stepId", path: "/sdk/v2/analytics/runs/{run}/steps/{broken}", foreign: 404},
	{route: "GET /sdk/v2/analytics/runs/:runId/events", path: "/sdk/v2/analytics/runs/{run}/events", foreign: 404},
	{route: "GET /sdk/v2/analytics/runs/:runId/events/:eventId", path: "/sdk/v2/analytics/runs/{run}/events/{event}", foreign: 404},
	{
		route: "POST /sdk/v2/analytics/runs/:runId/events/get-many", path: "/sdk/v2/analytics/runs/{run}/events/get-many",
		body: `cbor {"eventIds":["{event}"]}`, foreign: 404,
	},
	{route: "GET /sdk/v2/analytics/runs/:runId/waits", path: "/sdk/v2/analytics/runs/{run}/waits", foreign: 404},
	{route: "GET /sdk/v2/analytics/runs/:runId/waits/:waitId", path: "/sdk/v2/analytics/runs/{run}/waits/{wait}", foreign: 404},
	{route: "GET /sdk/v2/analytics/events", path: "/sdk/v2/analytics/events?correlationId={step}", foreign: 200},
	{route: "GET /sdk/v2/analytics/hooks", path: "/sdk/v2/analytics/hooks?runId={run}", foreign: 404},
	{route: "GET /sdk/v2/analytics/hooks/:hookId", path: "/sdk/v2/analytics/hooks/{hook}", foreign: 404},
	{route: "GET /sdk/v2/analytics/attributes", foreign: 200},

	{route: "GET /sdk/v2/stream/:name", path: "/sdk/v2/stream/{stream}", foreign: 200, endless: true},
	{
		route: "GET /sdk/v3/runs/:runId/stream/:name", path: "/sdk/v3/runs/{run}/stream/{stream}", foreign: 200,
		endless: true,
	},
	{route: "GET /sdk/v2/runs/:runId/streams", path: "/sdk/v2/runs/{run}/streams", foreign: 200},
	{route: "GET /sdk/v2/runs/:runId/streams/:name/chunks", path: "/sdk/v2/runs/{run}/streams/{stream}/chunks", foreign: 200},
	{route: "GET /sdk/v2/runs/:runId/streams/:name/info", path: "/sdk/v2/runs/{run}/streams/{stream}/info", foreign: 200},
	// A stream can be written before its run exists. A key of another project then writes a stream of its own project.
	{route: "PUT /sdk/v2/runs/:runId/stream/:name", path: "/sdk/v2/runs/{run}/stream/{stream}", body: `"theirs"`, foreign: 204},

	{
		route: "POST " + topic + ":topic", path: topic + "{topic}", body: `{}`,
		header: append([]string{"Vqs-Idempotency-Key", "{messageKey}"}, toApp...), foreign: http.StatusCreated,
	},
	{
		route: "POST " + topic + ":topic/batch", path: topic + "{topic}/batch",
		body:    "--x\r\nContent-Type: application/json\r\n\r\n{}\r\n--x--\r\n",
		header:  []string{"Vqs-Deployment-Id", "{deployment}", "Content-Type", "multipart/mixed; boundary=x"},
		foreign: http.StatusOK,
	},
	{
		route: "DELETE " + topic + ":topic/consumer/:group/lease/:receipt", foreign: 404,
		path: topic + "{topic}/consumer/default/lease/{receipt}",
	},
	{
		route: "PATCH " + topic + ":topic/consumer/:group/lease/:receipt", foreign: 404,
		path: topic + "{topic}/consumer/default/lease/{receipt}", body: `{"visibilityTimeoutSeconds":60}`,
	},
	{
		route: "POST " + topic + ":topic/consumer/:group/id/:messageId", foreign: 404,
		path: topic + "{topic}/consumer/default/id/{message}",
	},
	// The last one, because it ends the call that others are about.
	{
		route: "POST /v1/runs/:id/call/answer", path: "/v1/runs/{driven}/call/answer",
		header: []string{"Stepwell-Invocation", "{lease}"}, body: `{"status":500,"body":{"error":{"message":"classified"}}}`, foreign: 404,
	},
}
