// Package rest serves Stepwell's native HTTP API under /v1: JSON in camelCase, as openapi.yaml describes it.
//
// A function whose name ends with JSON encodes what its name says as a type of package api. Its comment says what that
// hides.
package rest

import (
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/live"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/runfile"
	"github.com/stepwell-dev/stepwell/eventlog/stats"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/flow/registry"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/starts/collection/collector"
	"github.com/stepwell-dev/stepwell/starts/schedule/scheduler"
	"github.com/stepwell-dev/stepwell/starts/trigger/triggers"
	"github.com/stepwell-dev/stepwell/why/overview"
)

// Server serves the native API. All fields except Allowed, Replica, Viewers, Version and Cell are required.
type Server struct {
	Log         *eventlog.Log
	Streams     *read.Streams
	Queue       *queue.Queue
	Runs        *engine.Engine
	Checker     *engine.Checker
	Scheduler   *scheduler.Scheduler
	Flows       *registry.Registry
	Collector   *collector.Collector
	Triggers    *triggers.Triggers
	Secrets     *admin.Secrets
	SigningKeys *admin.SigningKeys
	Keys        *access.Keys
	Encryption  *encryption.Keys
	Archived    *runfile.Logs
	Maintainer  *upkeep.Maintainer
	Projects    *access.Projects
	Limits      *limit.Store
	Sessions    *access.Sessions
	Stats       *stats.Reader
	Overview    *overview.Reader
	// Allowed lists the non-public addresses that deployments may have.
	Allowed egress.Allowed
	// Reader runs the queries that only read entities.
	Reader pg.Querier
	// Replica answers reads that may be late; nil if there is none.
	Replica *cluster.Replica
	Logger  *slog.Logger
	// Version is that of the program; empty if unknown.
	Version string
	// Cell is that of the server; empty for none.
	Cell entities.Cell
	// Viewers limits the live views of all projects in this process; 0 means 500, and less than 0 that there are none.
	Viewers int
	// Draining is done when the server is about to stop. Requests that follow a stream or wait for a run then end, and
	// their clients reconnect.
	Draining context.Context

	// Set by Register:
	decoding decoding
	pages    pages
	checks   checks
	live     *live.Followers[liveRun]
}

// timestamp returns a time in the API's form.
func timestamp(t time.Time) api.Time { return api.Time{Time: t} }

// optionalTime returns the zero time, which answers leave out, for nil.
func optionalTime(t *time.Time) (at api.Time) {
	if t != nil {
		at = timestamp(*t)
	}
	return at
}

// answer answers with the result of do, unless reading the request failed.
func answer[T any](r *request, do func() (T, error)) error {
	if r.err != nil {
		return r.err
	}
	var b body
	err := r.pages.do(r.ctx(), r.project(), r.rows, func() error {
		result, err := do()
		if err != nil {
			return err
		}
		b, err = newBody(r.Request(), result)
		return err
	})
	if err != nil {
		return err
	}
	return b.send(r)
}

// answerAs is [answer] with the encoded result.
func answerAs[R, T any](r *request, encode func(R) T, do func() (R, error)) error {
	return answer(r, func() (encoded T, err error) {
		result, err := do()
		if err != nil {
			return encoded, err
		}
		return encode(result), nil
	})
}

// answerPage answers with one page of a query, unless reading the request failed.
func answerPage[R, T any](r *request, encode func(R) T, query func() (rows []R, cursor string, err error)) error {
	return answer(r, func() (page api.Page[T], err error) {
		rows, cursor, err := query()
		if err != nil {
			return page, err
		}
		return api.Page[T]{Data: encodeAll(rows, encode), Cursor: cursor}, nil
	})
}

// encodeAll returns the encoded rows: an empty list, not nil, if there are none.
func encodeAll[R, T any](rows []R, encode func(R) T) []T {
	encoded := make([]T, len(rows))
	for i, row := range rows {
		encoded[i] = encode(row)
	}
	return encoded
}

// textsOf returns IDs as texts.
func textsOf[T ~string](ids []T) []string {
	return encodeAll(ids, func(id T) string { return string(id) })
}

// answerAll answers with all rows of the request's project on a single page.
func answerAll[R, T any](
	r *request, encode func(R) T, find func(context.Context, entities.Project) ([]R, error),
) error {
	return answerPage(r, encode, func() ([]R, string, error) {
		rows, err := find(r.ctx(), r.project())
		return rows, "", err
	})
}

// answerOne answers with the row of the request's project that has the ID.
func answerOne[R, T any](
	r *request, id string, encode func(R) T, find func(context.Context, entities.Project, string) (R, error),
) error {
	return answerAs(r, encode, func() (R, error) { return find(r.ctx(), r.project(), id) })
}

// deleteOne deletes the row of the request's project that has the ID.
func deleteOne(r *request, id string, remove func(context.Context, entities.Project, string) error) error {
	return answerNothing(r, func() error { return remove(r.ctx(), r.project(), id) })
}

// answerNothing answers with 204 after do succeeded, unless reading the request failed.
func answerNothing(r *request, do func() error) error {
	if r.err != nil {
		return r.err
	}
	if err := do(); err != nil {
		return err
	}
	return r.NoContent(http.StatusNoContent)
}

// handler answers a request.
type handler func(*Server, *request) error

// routes are the endpoints, each with the permission it needs, and with whether it may read from a replica: see
// [mayBeLate] and [onceEnded].
//
// A new endpoint also needs an entry in openapi.yaml, a test that calls it, and a request in
// handlers/matrix_requests_test.go, which tries every role on it. Then regenerate docs/api.md:
// go test ./handlers/rest -run TestReference -update
var routes = []struct {
	pattern    string
	permission auth.Permission
	handle     handler
}{
	// Runs.
	{"POST /runs", auth.Invoke, (*Server).startRun},
	{"GET /runs", auth.Metadata, mayBeLate((*Server).listRuns)},
	{"GET /runs/count", auth.Metadata, mayBeLate((*Server).countRuns)},
	{"GET /search", auth.Metadata, mayBeLate((*Server).search)},
	{"GET /runs/needs", auth.Metadata, (*Server).countNeeds},
	{"GET /runs/:id", auth.Any, (*Server).getRun},
	{"GET /runs/:id/wait", auth.Any, (*Server).awaitRun},
	{"GET /runs/:id/why", auth.Metadata, onceEnded((*Server).explainRun)},
	{"GET /runs/:id/attributes", auth.Metadata, (*Server).getAttributes},
	{"PATCH /runs/:id/attributes", auth.Write, (*Server).setAttributes},
	{"GET /runs/:id/counts", auth.Metadata, onceEnded((*Server).countRunParts)},
	{"GET /runs/:id/children", auth.Metadata, onceEnded((*Server).listChildren)},
	{"POST /runs/:id/cancel", auth.Write, (*Server).cancelRun},
	{"POST /runs/cancel", auth.Write, (*Server).cancelRuns},
	{"POST /runs/:id/shred", auth.Admin, (*Server).shredRun},
	{"POST /runs/:id/rerun", auth.Write, (*Server).rerunRun},
	{"POST /runs/rerun", auth.Write, (*Server).rerunRuns},
	{"POST /runs/:id/commands", auth.Write, (*Server).commandRun},
	{"POST /runs/:id/call/keep", auth.Write, (*Server).keepCall},
	{"POST /runs/:id/call/answer", auth.Write, (*Server).answerCall},
	{"POST /runs/:id/call/heartbeat", auth.Write, (*Server).beatCall},
	{"POST /runs/:id/call/stream", auth.Write, (*Server).writeStream},

	// Parts of runs.
	{"GET /runs/:id/steps", auth.Metadata, onceEnded((*Server).listSteps)},
	{"GET /runs/:id/steps/:stepId", auth.Metadata, (*Server).getStep},
	{"POST /runs/:id/steps/:stepId/result", auth.Invoke, (*Server).endStep},
	{"GET /hooks", auth.Metadata, mayBeLate((*Server).listHooks)},
	{"GET /approvals", auth.Any, (*Server).listApprovals},
	{"GET /runs/:id/hooks", auth.Metadata, onceEnded((*Server).listRunHooks)},
	{"GET /runs/:id/hooks/:hookId", auth.Metadata, (*Server).getHook},
	{"POST /hooks/:token/resume", auth.Invoke, (*Server).resumeByToken},
	{"POST /runs/:id/hooks/:hookId/resume", auth.Invoke, (*Server).resumeHook},
	{"POST /runs/:id/inbox/:name", auth.Invoke, (*Server).sendMessage},
	{"GET /runs/:id/store", auth.Read, (*Server).getStore},
	{"GET /runs/:id/store/:key", auth.Read, (*Server).getStoreValue},
	{"GET /waits", auth.Metadata, mayBeLate((*Server).listOpenWaits)},
	{"GET /runs/:id/waits", auth.Metadata, onceEnded((*Server).listWaits)},
	{"GET /runs/:id/streams", auth.Metadata, (*Server).listStreams},
	{"GET /runs/:id/streams/:name", auth.Read, (*Server).listChunks},
	{"GET /runs/:id/streams/:name/tail", auth.Read, (*Server).tailStream},

	// Events.
	{"GET /runs/:id/events", auth.Metadata, onceEnded((*Server).listRunEvents)},
	{"GET /runs/:id/events/stream", auth.Metadata, (*Server).followRun},
	{"GET /runs/:id/events/:seq", auth.Metadata, (*Server).getEvent},
	{"GET /runs/:id/events/:seq/payload", auth.Read, (*Server).getPayload},
	{"GET /runs/:id/timeline", auth.Metadata, onceEnded((*Server).getTimeline)},
	{"GET /runs/:id/timeline/names", auth.Metadata, onceEnded((*Server).getTimelineNames)},
	{"GET /runs/:id/graph", auth.Metadata, (*Server).getRunGraph},
	{"GET /events", auth.Metadata, (*Server).listEvents},
	{"GET /events/stream", auth.Metadata, (*Server).followEvents},
	{"GET /live", auth.Any, (*Server).followLive},

	// The archive.
	{"GET /archive/runs", auth.Metadata, mayBeLate((*Server).listArchived)},
	{"GET /archive/runs/:id", auth.Metadata, mayBeLate((*Server).getArchived)},
	{"GET /archive/runs/:id/events", auth.Metadata, (*Server).listArchivedEvents},

	// Statistics.
	{"GET /stats/runs", auth.Metadata, mayBeLate((*Server).statsOfRuns)},
	{"GET /stats/steps", auth.Metadata, mayBeLate((*Server).statsOfSteps)},
	{"GET /stats/failures", auth.Metadata, mayBeLate((*Server).statsOfFailures)},
	{"GET /failures", auth.Metadata, mayBeLate((*Server).listFailures)},
	{"GET /workflows", auth.Metadata, mayBeLate((*Server).listWorkflows)},

	{"GET /stats/now", auth.Metadata, (*Server).gauges},
	{"GET /attention", auth.Metadata, (*Server).attention},

	// Signals.
	{"POST /signals/:name", auth.Invoke, (*Server).postSignal},
	{"GET /signals", auth.Metadata, mayBeLate((*Server).listSignals)},

	// Flows.
	{"GET /flows", auth.Metadata, (*Server).listFlows},
	{"POST /flows", auth.Admin, (*Server).postFlow},
	{"GET /flows/:name", auth.Metadata, (*Server).getFlow},
	{"GET /flows/:name/graph", auth.Metadata, (*Server).getFlowGraph},
	{"PUT /flows/:name/aliases/:alias", auth.Admin, (*Server).putAlias},
	{"DELETE /flows/:name/aliases/:alias", auth.Admin, (*Server).removeAlias},
	{"POST /flows/:name/versions/:version/retire", auth.Admin, (*Server).retireFlow},
	{"GET /catalogs", auth.Metadata, (*Server).listCatalogs},
	{"POST /catalogs", auth.Admin, (*Server).postCatalog},
	{"GET /catalogs/:name", auth.Metadata, (*Server).getCatalog},
	{"POST /catalogs/:name/preview", auth.Metadata, (*Server).previewCatalog},

	// Schedules.
	{"GET /schedules", auth.Metadata, (*Server).listSchedules},
	{"GET /schedules/:name", auth.Metadata, (*Server).getSchedule},
	{"PUT /schedules/:name", auth.Admin, (*Server).putSchedule},
	{"DELETE /schedules/:name", auth.Admin, (*Server).removeSchedule},
	{"POST /schedules/:name/pause", auth.Write, (*Server).pauseSchedule},
	{"POST /schedules/:name/resume", auth.Write, (*Server).resumeSchedule},
	{"POST /schedules/:name/trigger", auth.Write, (*Server).triggerSchedule},
	{"POST /schedules/:name/backfill", auth.Write, (*Server).backfillSchedule},
	{"DELETE /schedules/:name/backfill", auth.Write, (*Server).endBackfill},
	{"GET /schedules/:name/ticks", auth.Metadata, (*Server).listTicks},

	// Collections.
	{"GET /collections", auth.Metadata, (*Server).listCollections},
	{"GET /collections/:id", auth.Metadata, (*Server).getCollection},
	{"POST /collections/:id/flush", auth.Write, (*Server).flushCollection},
	{"DELETE /collections/:id", auth.Write, (*Server).dropCollection},

	// Triggers.
	{"GET /triggers", auth.Metadata, (*Server).listTriggers},
	{"GET /triggers/:name", auth.Metadata, (*Server).getTrigger},
	{"PUT /triggers/:name", auth.Admin, (*Server).putTrigger},
	{"DELETE /triggers/:name", auth.Admin, (*Server).removeTrigger},
	{"POST /triggers/:name/pause", auth.Write, (*Server).pauseTrigger},
	{"POST /triggers/:name/resume", auth.Write, (*Server).resumeTrigger},
	{"GET /triggers/:name/history", auth.Metadata, (*Server).listTriggerEvents},

	// Limits.
	{"GET /limits", auth.Metadata, (*Server).listLimits},
	{"GET /limits/:name", auth.Metadata, (*Server).getLimit},
	{"PUT /limits/:name", auth.Admin, (*Server).putLimit},
	{"DELETE /limits/:name", auth.Admin, (*Server).removeLimit},
	{"GET /limits/:name/keys", auth.Metadata, (*Server).listLimitKeys},
	{"GET /limits/:name/slots", auth.Metadata, (*Server).getSlots},
	{"GET /policies", auth.Metadata, (*Server).listPolicies},
	{"GET /policies/:workflow", auth.Metadata, (*Server).getPolicy},
	{"PUT /policies/:workflow", auth.Admin, (*Server).putPolicy},
	{"DELETE /policies/:workflow", auth.Admin, (*Server).removePolicy},

	// Deployments.
	{"GET /deployments", auth.Metadata, (*Server).listDeployments},
	{"GET /deployments/:id", auth.Registered, (*Server).getDeployment},
	{"PUT /deployments/:id", auth.Register, (*Server).putDeployment},
	{"PATCH /deployments/:id", auth.Register, (*Server).patchDeployment},
	{"DELETE /deployments/:id", auth.Admin, (*Server).removeDeployment},
	{"POST /deployments/:id/check", auth.Admin, (*Server).checkDeployment},
	{"POST /work", auth.Register, (*Server).takeCalls},

	// Pauses.
	{"GET /pauses", auth.Metadata, (*Server).listPauses},
	{"PUT /pauses/:kind/:name", auth.Write, (*Server).putPause},
	{"DELETE /pauses/:kind/:name", auth.Write, (*Server).removePause},

	// Secrets.
	{"GET /secrets", auth.Metadata, (*Server).listSecrets},
	{"PUT /secrets/:name", auth.Admin, (*Server).putSecret},
	{"DELETE /secrets/:name", auth.Admin, (*Server).removeSecret},

	// Signing keys.
	{"GET /signing-keys", auth.Admin, (*Server).listSigningKeys},
	{"POST /signing-keys", auth.Admin, (*Server).createSigningKey},
	{"DELETE /signing-keys/:id", auth.Admin, (*Server).deleteSigningKey},

	// Messages.
	{"GET /messages", auth.Metadata, mayBeLate((*Server).listMessages)},
	{"GET /messages/count", auth.Metadata, mayBeLate((*Server).countMessages)},
	{"POST /messages/retry", auth.Write, (*Server).retryMessages},
	{"POST /messages/discard", auth.Write, (*Server).discardMessages},
	{"GET /messages/:id", auth.Metadata, (*Server).getMessage},
	{"POST /messages/:id/retry", auth.Write, (*Server).retryMessage},
	{"DELETE /messages/:id", auth.Write, (*Server).discardMessage},

	// Access.
	{"GET /whoami", auth.Any, (*Server).describeClient},
	{"GET /keys", auth.Admin, (*Server).listKeys},
	{"POST /keys", auth.Admin, (*Server).createKey},
	{"GET /keys/:id", auth.Admin, (*Server).getKey},
	{"DELETE /keys/:id", auth.Admin, (*Server).revokeKey},
	{"GET /projects", auth.Admin, (*Server).listProjects},
	{"PUT /projects/:name", auth.Admin, (*Server).putProject},
	{"GET /audit", auth.Admin, (*Server).listAudit},
	{"GET /servers", auth.Admin, (*Server).listServers},
	{"POST /ui/codes", auth.Any, (*Server).createCode},
	{"GET /ui/sessions", auth.Admin, (*Server).listSessions},
	{"DELETE /ui/sessions/:id", auth.Admin, (*Server).endSession},
}

// callRoutes are the routes that also accept the tokens of calls.
var callRoutes = []string{
	"POST /runs/:id/commands",
	"POST /runs/:id/call/keep",
	"POST /runs/:id/call/answer",
	"POST /runs/:id/call/heartbeat",
	"POST /runs/:id/call/stream",
	"GET /runs/:id/store",
	"GET /runs/:id/store/:key",
	"GET /runs/:id/events",
	"GET /runs/:id/events/:seq/payload",
	"GET /runs/:id/streams",
	"GET /runs/:id/streams/:name",
}

// Register adds the endpoints to the group.
func (s *Server) Register(g auth.Routes) {
	s.live = live.New(live.Options[liveRun]{
		Log: s.Log.Log, Rows: s.liveRows, BlockedRuns: s.Queue.BlockedRuns, Versions: s.Overview.Versions,
		Viewers: s.Viewers,
	})
	s.decoding, s.pages = newDecoding(runtime.GOMAXPROCS(0), s.Log.Now), newPages(runtime.GOMAXPROCS(0))
	s.checks = checks{s.Checker, share.NewPool(checkSlots)}
	g.Use(validateQuery)
	g.NotFound(notFound)
	for _, route := range routes {
		g.Handle(route.pattern, route.permission, func(c echo.Context) error {
			r := &request{
				Context: c, reader: s.Reader, decoding: s.decoding, pages: s.pages, processors: s.Queue.Processors(),
			}
			return r.orPending(route.handle(s, r))
		})
	}
	for _, pattern := range callRoutes {
		g.ForCall(pattern)
	}
	g.ForCallback("POST /runs/:id/steps/:stepId/result")
}
