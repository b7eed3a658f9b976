package wire

import (
	"context"
	"log/slog"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue"
)

// Server answers the Workflow SDK's clients.
type Server struct {
	// Log, Streams and Queue are what requests act on; Reader is where entities are read from.
	Log     *eventlog.Log
	Streams *eventlog.Streams
	Queue   *queue.Queue
	Reader  entities.Querier
	Logger  *slog.Logger
	// Problem is what a client is told about an error that is only a part of its answer.
	Problem func(error) (status int, code, message string)
	// Draining ends when the server is about to stop: whoever follows a stream or waits for a run then has to
	// come back.
	Draining context.Context
}

// Register adds the endpoints of protocol §2.3 below the group, which must authenticate.
func (s *Server) Register(g *echo.Group) {
	// Events.
	g.POST("/v4/runs/:runId/events/:eventType", s.postEvent)
	g.POST("/v4/runs/:runId/events/batch", s.postBatch)
	g.GET("/v4/runs/:runId/events", s.listEvents)
	g.GET("/v4/runs/:runId/events/:eventId", s.getEvent)
	g.GET("/v4/events", s.listEventsByCorrelation)

	// Entities.
	g.GET("/v2/runs", s.listRuns)
	g.GET("/v2/runs/:runId", s.getRun)
	g.GET("/v2/runs/:runId/status", s.awaitRun)
	g.POST("/v2/runs/:runId/attributes", s.setAttributes)
	g.POST("/v4/runs/cancel", s.cancelRuns)
	g.GET("/v2/runs/:runId/steps", s.listSteps)
	g.GET("/v2/runs/:runId/steps/:stepId", s.getStep)
	g.GET("/v2/steps/:stepId", s.getStep)
	g.GET("/v2/hooks", s.listHooks)
	g.GET("/v2/hooks/by-token", s.getHookByToken)
	g.GET("/v2/hooks/:hookId", s.getHook)

	// Analytics.
	a := g.Group("/v2/analytics")
	a.GET("/runs", s.analyticsRuns)
	a.GET("/runs/:runId", s.analyticsRun)
	a.GET("/runs/:runId/steps", s.analyticsSteps)
	a.GET("/runs/:runId/steps/:stepId", s.analyticsStep)
	a.GET("/runs/:runId/events", s.analyticsEvents)
	a.GET("/runs/:runId/events/:eventId", s.analyticsEvent)
	a.POST("/runs/:runId/events/get-many", s.analyticsEventsAt)
	a.GET("/runs/:runId/waits", s.analyticsWaits)
	a.GET("/runs/:runId/waits/:waitId", s.analyticsWait)
	a.GET("/events", s.analyticsEventsByCorrelation)
	a.GET("/hooks", s.analyticsHooks)
	a.GET("/hooks/:hookId", s.analyticsHook)
	a.GET("/attributes", s.analyticsAttributes)

	// Streams.
	g.PUT("/v2/runs/:runId/stream/:name", s.writeStream)
	g.GET("/v2/stream/:name", s.tailStream)
	g.GET("/v3/runs/:runId/stream/:name", s.tailStream)
	g.GET("/v2/runs/:runId/streams", s.listStreams)
	g.GET("/v2/runs/:runId/streams/:name/chunks", s.listChunks)
	g.GET("/v2/runs/:runId/streams/:name/info", s.streamInfo)

	// Queue.
	topic := g.Group("/queues-proxy/api/v3/topic/:topic")
	topic.POST("", s.sendMessage)
	topic.POST("/batch", s.sendMessages)
	topic.DELETE("/consumer/:group/lease/:receipt", s.acknowledge)
	topic.PATCH("/consumer/:group/lease/:receipt", s.setVisibility)
	topic.POST("/consumer/:group/id/:messageId", s.receiveMessage)
}
