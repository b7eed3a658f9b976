package rest

import (
	"net/http"
	"runtime"

	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// Register adds the endpoints to the group, each with the permission it needs.
//
// A new endpoint also needs an entry in openapi.yaml, a test that calls it, and a request in
// handlers/matrix_requests_test.go, which tries every role on it. Then regenerate docs/api.md:
// go test ./handlers/rest -run TestReference -update
func (s *Server) Register(g auth.Routes) {
	s.live = s.newLive()
	s.decoding = newDecoding(runtime.GOMAXPROCS(0), s.Log.Now)
	g.Use(validateQuery)
	g.NotFound(notFound)
	s.registerRuns(g)
	s.registerOther(g)
}

func (s *Server) registerRuns(g auth.Routes) {
	// Runs.
	g.POST("/runs", auth.Invoke, s.startRun)
	g.GET("/runs", auth.Metadata, s.listRuns)
	g.GET("/runs/count", auth.Metadata, s.countRuns)
	g.GET("/runs/:id", auth.Any, s.getRun)
	g.GET("/runs/:id/wait", auth.Any, s.awaitRun)
	g.GET("/runs/:id/why", auth.Metadata, s.explainRun)
	g.GET("/runs/:id/attributes", auth.Metadata, s.getAttributes)
	g.PATCH("/runs/:id/attributes", auth.Write, s.setAttributes)
	g.GET("/runs/:id/children", auth.Metadata, s.listChildren)
	g.POST("/runs/:id/cancel", auth.Write, s.cancelRun)
	g.POST("/runs/cancel", auth.Write, s.cancelRuns)
	g.POST("/runs/:id/rerun", auth.Write, s.rerunRun)
	g.POST("/runs/rerun", auth.Write, s.rerunRuns)
	g.POST("/runs/:id/commands", auth.Write, s.commandRun)
	g.ForCall(http.MethodPost, "/runs/:id/commands")

	// Parts of runs.
	g.GET("/runs/:id/steps", auth.Metadata, s.listSteps)
	g.GET("/runs/:id/steps/:stepId", auth.Metadata, s.getStep)
	g.GET("/hooks", auth.Metadata, s.listHooks)
	g.GET("/runs/:id/hooks", auth.Metadata, s.listRunHooks)
	g.GET("/runs/:id/hooks/:hookId", auth.Metadata, s.getHook)
	g.POST("/hooks/:token/resume", auth.Invoke, s.resumeByToken)
	g.POST("/runs/:id/hooks/:hookId/resume", auth.Invoke, s.resumeHook)
	g.POST("/runs/:id/inbox/:name", auth.Invoke, s.sendMessage)
	g.GET("/runs/:id/store", auth.Read, s.getStore)
	g.ForCall(http.MethodGet, "/runs/:id/store")
	g.GET("/runs/:id/store/:key", auth.Read, s.getStoreValue)
	g.ForCall(http.MethodGet, "/runs/:id/store/:key")
	g.GET("/waits", auth.Metadata, s.listOpenWaits)
	g.GET("/runs/:id/waits", auth.Metadata, s.listWaits)
	g.GET("/runs/:id/streams", auth.Metadata, s.listStreams)
	g.GET("/runs/:id/streams/:name", auth.Read, s.listChunks)
	g.GET("/runs/:id/streams/:name/tail", auth.Read, s.tailStream)

	// Events.
	g.GET("/runs/:id/events", auth.Metadata, s.listRunEvents)
	g.ForCall(http.MethodGet, "/runs/:id/events")
	g.GET("/runs/:id/events/stream", auth.Metadata, s.followRun)
	g.GET("/runs/:id/events/:seq", auth.Metadata, s.getEvent)
	g.GET("/runs/:id/events/:seq/payload", auth.Read, s.getPayload)
	g.ForCall(http.MethodGet, "/runs/:id/events/:seq/payload")
	g.GET("/runs/:id/timeline", auth.Metadata, s.getTimeline)
	g.GET("/runs/:id/timeline/names", auth.Metadata, s.getTimelineNames)
	g.GET("/events", auth.Metadata, s.listEvents)
	g.GET("/events/stream", auth.Metadata, s.followEvents)
	g.GET("/live", auth.Metadata, s.followLive)

}

func (s *Server) registerOther(g auth.Routes) {
	// Statistics.
	g.GET("/stats/runs", auth.Metadata, s.statsOfRuns)
	g.GET("/stats/steps", auth.Metadata, s.statsOfSteps)
	g.GET("/stats/failures", auth.Metadata, s.statsOfFailures)
	g.GET("/failures", auth.Metadata, s.listFailures)
	g.GET("/workflows", auth.Metadata, s.listWorkflows)

	// Views and search.
	g.GET("/views", auth.Metadata, s.listViews)
	g.GET("/views/:name", auth.Metadata, s.getView)
	g.PUT("/views/:name", auth.Write, s.putView)
	g.DELETE("/views/:name", auth.Write, s.removeView)
	g.GET("/search", auth.Metadata, s.search)
	g.GET("/stats/now", auth.Metadata, s.gauges)
	g.GET("/attention", auth.Metadata, s.attention)

	// Signals.
	g.POST("/signals/:name", auth.Invoke, s.postSignal)
	g.GET("/signals", auth.Metadata, s.listSignals)

	// Deployments.
	g.GET("/deployments", auth.Metadata, s.listDeployments)
	g.GET("/deployments/:id", auth.Registered, s.getDeployment)
	g.PUT("/deployments/:id", auth.Register, s.putDeployment)
	g.DELETE("/deployments/:id", auth.Admin, s.removeDeployment)

	// Secrets.
	g.GET("/secrets", auth.Metadata, s.listSecrets)
	g.PUT("/secrets/:name", auth.Admin, s.putSecret)
	g.DELETE("/secrets/:name", auth.Admin, s.removeSecret)

	// Signing keys.
	g.GET("/signing-keys", auth.Admin, s.listSigningKeys)
	g.POST("/signing-keys", auth.Admin, s.createSigningKey)
	g.DELETE("/signing-keys/:id", auth.Admin, s.deleteSigningKey)

	// Messages.
	g.GET("/messages", auth.Metadata, s.listMessages)
	g.GET("/messages/count", auth.Metadata, s.countMessages)
	g.POST("/messages/retry", auth.Write, s.retryMessages)
	g.POST("/messages/discard", auth.Write, s.discardMessages)
	g.GET("/messages/:id", auth.Metadata, s.getMessage)
	g.POST("/messages/:id/retry", auth.Write, s.retryMessage)
	g.DELETE("/messages/:id", auth.Write, s.discardMessage)

	// Access.
	g.GET("/whoami", auth.Any, s.describeClient)
	g.GET("/keys", auth.Admin, s.listKeys)
	g.POST("/keys", auth.Admin, s.createKey)
	g.GET("/keys/:id", auth.Admin, s.getKey)
	g.DELETE("/keys/:id", auth.Admin, s.revokeKey)
	g.GET("/projects", auth.Admin, s.listProjects)
	g.PUT("/projects/:name", auth.Admin, s.putProject)
	g.GET("/audit", auth.Admin, s.listAudit)
	g.GET("/servers", auth.Admin, s.listServers)
	g.POST("/ui/codes", auth.Any, s.createCode)
	g.GET("/ui/sessions", auth.Admin, s.listSessions)
	g.DELETE("/ui/sessions/:id", auth.Admin, s.endSession)
}
