package rest

import "github.com/labstack/echo/v4"

// Register adds the endpoints below the group, which must authenticate.
//
// A new endpoint stands in three places: here, in openapi.yaml, and in a test that calls it. Then
// go test ./handlers/rest -run TestReference -update writes docs/api.md anew.
func (s *Server) Register(g *echo.Group) {
	g.Use(refuseUnknown)
	g.RouteNotFound("/*", nowhere)

	// Runs.
	g.POST("/runs", s.startRun)
	g.GET("/runs", s.listRuns)
	g.GET("/runs/:id", s.getRun)
	g.GET("/runs/:id/wait", s.awaitRun)
	g.GET("/runs/:id/attributes", s.getAttributes)
	g.PATCH("/runs/:id/attributes", s.setAttributes)
	g.GET("/runs/:id/children", s.listChildren)
	g.POST("/runs/:id/cancel", s.cancelRun)
	g.POST("/runs/cancel", s.cancelRuns)
	g.POST("/runs/:id/rerun", s.rerunRun)
	g.POST("/runs/:id/commands", s.commandRun)

	// What runs have.
	g.GET("/runs/:id/steps", s.listSteps)
	g.GET("/runs/:id/steps/:stepId", s.getStep)
	g.GET("/hooks", s.listHooks)
	g.GET("/runs/:id/hooks", s.listRunHooks)
	g.GET("/runs/:id/hooks/:hookId", s.getHook)
	g.POST("/hooks/:token/resume", s.resumeByToken)
	g.POST("/runs/:id/hooks/:hookId/resume", s.resumeHook)
	g.GET("/runs/:id/waits", s.listWaits)
	g.GET("/runs/:id/streams", s.listStreams)
	g.GET("/runs/:id/streams/:name", s.listChunks)
	g.GET("/runs/:id/streams/:name/tail", s.tailStream)

	// Logs.
	g.GET("/runs/:id/events", s.listRunEvents)
	g.GET("/runs/:id/events/stream", s.followRun)
	g.GET("/runs/:id/events/:seq", s.getEvent)
	g.GET("/runs/:id/events/:seq/payload", s.getPayload)
	g.GET("/events", s.listEvents)
	g.GET("/events/stream", s.followEvents)

	// Signals.
	g.POST("/signals/:name", s.postSignal)
	g.GET("/signals", s.listSignals)

	// Deployments.
	g.GET("/deployments", s.listDeployments)
	g.GET("/deployments/:id", s.getDeployment)
	g.PUT("/deployments/:id", s.putDeployment)
	g.DELETE("/deployments/:id", s.removeDeployment)

	// Secrets.
	g.GET("/secrets", s.listSecrets)
	g.PUT("/secrets/:name", s.putSecret)
	g.DELETE("/secrets/:name", s.removeSecret)

	// Signing keys.
	g.GET("/signing-keys", s.listSigningKeys)
	g.POST("/signing-keys", s.createSigningKey)
	g.DELETE("/signing-keys/:id", s.deleteSigningKey)

	// Messages.
	g.GET("/messages", s.listMessages)
	g.GET("/messages/:id", s.getMessage)
	g.POST("/messages/:id/retry", s.retryMessage)
	g.DELETE("/messages/:id", s.discardMessage)
}
