package wire

import (
	"context"
	"log/slog"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/world"
)

// Server serves the endpoints of the protocol.
type Server struct {
	// Log, Streams and Queue execute requests; Reader reads entities.
	Log     *eventlog.Log
	Streams *read.Streams
	Queue   *queue.Queue
	Reader  pg.Querier
	Logger  *slog.Logger
	// PullByDefault lets apps ask for their deliveries that are not configured to, unless they are registered at a URL.
	PullByDefault bool
	// Fence serves runs with a fence: spec version 9.
	Fence bool
	// Clients is what the processes that ask for their deliveries know of runs.
	Clients *world.Clients
	// Problem translates an error that is only a part of an answer.
	Problem func(error) Problem
	// Draining is done when the server is about to stop. Clients that follow a stream or wait for a run must then
	// reconnect.
	Draining context.Context
}

// Problem is the client's view of an error.
type Problem struct {
	Status        int
	Code, Message string
	// RetryAfter is the time after which a repetition may succeed; 0 if that is unknown.
	RetryAfter time.Duration
	// Counters are those of a run whose writer was superseded; nil for other problems.
	Counters *entities.SupersededError
	// ClaimedBy is the hook that has the token of the one that the request is about; nil if it has not lost it.
	ClaimedBy *entities.HookRef
}

// routes are the endpoints of §2.3, each with the permission that it requires. Lists for the dashboard contain no
// payloads, so the permission for metadata suffices; all other reads may contain payloads.
var routes = []struct {
	pattern    string
	permission auth.Permission
	handle     func(*Server, *request) error
}{
	// Events. The routes of version 5 serve all runs, and those of version 4 write only to runs without a fence.
	{"POST /v5/runs/:runId/events/:eventType", auth.Write, withFence((*Server).postEvent)},
	{"POST /v5/runs/:runId/events/batch", auth.Write, withFence((*Server).postBatch)},
	{"GET /v5/runs/:runId/events", auth.Read, withFence((*Server).listEvents)},
	{"GET /v5/runs/:runId/events/:eventId", auth.Read, withFence((*Server).getEvent)},
	{"POST /v4/runs/:runId/events/:eventType", auth.Write, (*Server).postEvent},
	{"POST /v4/runs/:runId/events/batch", auth.Write, (*Server).postBatch},
	{"GET /v4/runs/:runId/events", auth.Read, (*Server).listEvents},
	{"GET /v4/runs/:runId/events/:eventId", auth.Read, (*Server).getEvent},
	{"GET /v4/events", auth.Read, (*Server).listEventsByCorrelation},

	// The own client of @stepwell/world.
	{"POST /world/v1/commit", auth.Write, (*Server).postCommit},
	{"POST /world/v1/pull", auth.Write, (*Server).pull},

	// Entities.
	{"GET /v2/runs", auth.Read, (*Server).listRuns},
	{"GET /v2/runs/:runId", auth.Read, (*Server).getRun},
	{"GET /v2/runs/:runId/status", auth.Read, (*Server).awaitRun},
	{"POST /v2/runs/:runId/attributes", auth.Write, (*Server).setAttributes},
	{"POST /v4/runs/cancel", auth.Write, (*Server).cancelRuns},
	{"GET /v2/runs/:runId/steps", auth.Read, (*Server).listSteps},
	{"GET /v2/runs/:runId/steps/:stepId", auth.Read, (*Server).getStep},
	{"GET /v2/steps/:stepId", auth.Read, (*Server).getStep},
	{"GET /v2/hooks", auth.Read, (*Server).listHooks},
	{"GET /v2/hooks/by-token", auth.Read, (*Server).getHookByToken},
	{"GET /v2/hooks/:hookId", auth.Read, (*Server).getHook},

	// Analytics.
	{"GET /v2/analytics/runs", auth.Metadata, (*Server).analyticsRuns},
	{"GET /v2/analytics/runs/:runId", auth.Metadata, (*Server).analyticsRun},
	{"GET /v2/analytics/runs/:runId/steps", auth.Metadata, (*Server).analyticsSteps},
	{"GET /v2/analytics/runs/:runId/steps/:stepId", auth.Metadata, (*Server).analyticsStep},
	{"GET /v2/analytics/runs/:runId/events", auth.Metadata, (*Server).analyticsEvents},
	{"GET /v2/analytics/runs/:runId/events/:eventId", auth.Metadata, (*Server).analyticsEvent},
	{"POST /v2/analytics/runs/:runId/events/get-many", auth.Metadata, (*Server).analyticsEventsAt},
	{"GET /v2/analytics/runs/:runId/waits", auth.Metadata, (*Server).analyticsWaits},
	{"GET /v2/analytics/runs/:runId/waits/:waitId", auth.Metadata, (*Server).analyticsWait},
	{"GET /v2/analytics/events", auth.Metadata, (*Server).analyticsEventsByCorrelation},
	{"GET /v2/analytics/hooks", auth.Metadata, (*Server).analyticsHooks},
	{"GET /v2/analytics/hooks/:hookId", auth.Metadata, (*Server).analyticsHook},
	{"GET /v2/analytics/attributes", auth.Metadata, (*Server).analyticsAttributes},

	// Streams.
	{"PUT /v2/runs/:runId/stream/:name", auth.Write, (*Server).writeStream},
	{"GET /v2/stream/:name", auth.Read, (*Server).tailStream},
	{"GET /v3/runs/:runId/stream/:name", auth.Read, (*Server).tailStream},
	{"GET /v2/runs/:runId/streams", auth.Read, (*Server).listStreams},
	{"GET /v2/runs/:runId/streams/:name/chunks", auth.Read, (*Server).listChunks},
	{"GET /v2/runs/:runId/streams/:name/info", auth.Read, (*Server).streamInfo},

	// Queue.
	{"POST /queues-proxy/api/v3/topic/:topic", auth.Write, (*Server).sendMessage},
	{"POST /queues-proxy/api/v3/topic/:topic/batch", auth.Write, (*Server).sendMessages},
	{"DELETE /queues-proxy/api/v3/topic/:topic/consumer/:group/lease/:receipt", auth.Write, (*Server).acknowledge},
	{"PATCH /queues-proxy/api/v3/topic/:topic/consumer/:group/lease/:receipt", auth.Write, (*Server).setVisibility},
	{"POST /queues-proxy/api/v3/topic/:topic/consumer/:group/id/:messageId", auth.Write, (*Server).receiveMessage},
}

// Register adds the endpoints to the group.
func (s *Server) Register(g auth.Routes) {
	for _, route := range routes {
		g.Handle(route.pattern, route.permission, func(c echo.Context) error {
			return route.handle(s, &request{Context: c})
		})
	}
}
