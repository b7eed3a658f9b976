package wire

import (
	"context"
	"log/slog"

	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/queue"
)

// Server serves the endpoints of the protocol.
type Server struct {
	// Log, Streams and Queue execute requests; Reader reads entities.
	Log     *eventlog.Log
	Streams *read.Streams
	Queue   *queue.Queue
	Reader  pg.Querier
	Logger  *slog.Logger
	// Problem translates an error that is only a part of an answer.
	Problem func(error) (status int, code, message string)
	// Draining is done when the server is about to stop. Clients that follow a stream or wait for a run must then
	// reconnect.
	Draining context.Context
}

// Register adds the endpoints of §2.3 to the group, each with the permission that it requires. Lists for the dashboard
// contain no payloads, so the permission for metadata suffices; all other reads may contain payloads.
func (s *Server) Register(g auth.Routes) {
	// Events.
	g.POST("/v4/runs/:runId/events/:eventType", auth.Write, s.postEvent)
	g.POST("/v4/runs/:runId/events/batch", auth.Write, s.postBatch)
	g.GET("/v4/runs/:runId/events", auth.Read, s.listEvents)
	g.GET("/v4/runs/:runId/events/:eventId", auth.Read, s.getEvent)
	g.GET("/v4/events", auth.Read, s.listEventsByCorrelation)

	// Entities.
	g.GET("/v2/runs", auth.Read, s.listRuns)
	g.GET("/v2/runs/:runId", auth.Read, s.getRun)
	g.GET("/v2/runs/:runId/status", auth.Read, s.awaitRun)
	g.POST("/v2/runs/:runId/attributes", auth.Write, s.setAttributes)
	g.POST("/v4/runs/cancel", auth.Write, s.cancelRuns)
	g.GET("/v2/runs/:runId/steps", auth.Read, s.listSteps)
	g.GET("/v2/runs/:runId/steps/:stepId", auth.Read, s.getStep)
	g.GET("/v2/steps/:stepId", auth.Read, s.getStep)
	g.GET("/v2/hooks", auth.Read, s.listHooks)
	g.GET("/v2/hooks/by-token", auth.Read, s.getHookByToken)
	g.GET("/v2/hooks/:hookId", auth.Read, s.getHook)

	// Analytics.
	a := g.Group("/v2/analytics")
	a.GET("/runs", auth.Metadata, s.analyticsRuns)
	a.GET("/runs/:runId", auth.Metadata, s.analyticsRun)
	a.GET("/runs/:runId/steps", auth.Metadata, s.analyticsSteps)
	a.GET("/runs/:runId/steps/:stepId", auth.Metadata, s.analyticsStep)
	a.GET("/runs/:runId/events", auth.Metadata, s.analyticsEvents)
	a.GET("/runs/:runId/events/:eventId", auth.Metadata, s.analyticsEvent)
	a.POST("/runs/:runId/events/get-many", auth.Metadata, s.analyticsEventsAt)
	a.GET("/runs/:runId/waits", auth.Metadata, s.analyticsWaits)
	a.GET("/runs/:runId/waits/:waitId", auth.Metadata, s.analyticsWait)
	a.GET("/events", auth.Metadata, s.analyticsEventsByCorrelation)
	a.GET("/hooks", auth.Metadata, s.analyticsHooks)
	a.GET("/hooks/:hookId", auth.Metadata, s.analyticsHook)
	a.GET("/attributes", auth.Metadata, s.analyticsAttributes)

	// Streams.
	g.PUT("/v2/runs/:runId/stream/:name", auth.Write, s.writeStream)
	g.GET("/v2/stream/:name", auth.Read, s.tailStream)
	g.GET("/v3/runs/:runId/stream/:name", auth.Read, s.tailStream)
	g.GET("/v2/runs/:runId/streams", auth.Read, s.listStreams)
	g.GET("/v2/runs/:runId/streams/:name/chunks", auth.Read, s.listChunks)
	g.GET("/v2/runs/:runId/streams/:name/info", auth.Read, s.streamInfo)

	// Queue.
	topic := g.Group("/queues-proxy/api/v3/topic/:topic")
	topic.POST("", auth.Write, s.sendMessage)
	topic.POST("/batch", auth.Write, s.sendMessages)
	topic.DELETE("/consumer/:group/lease/:receipt", auth.Write, s.acknowledge)
	topic.PATCH("/consumer/:group/lease/:receipt", auth.Write, s.setVisibility)
	topic.POST("/consumer/:group/id/:messageId", auth.Write, s.receiveMessage)
}
