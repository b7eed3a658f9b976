package handlers

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/telemetry"
	"github.com/stepwell-dev/stepwell/handlers/ui"
)

// slowRequest is the duration from which requests are logged as warnings.
const slowRequest = time.Second

// observe gives each request an ID, measures and traces it, and logs it: slow requests as warnings, others at debug
// level. That a start had to wait is not slow. The error handler logs internal errors.
func observe(o Options) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := telemetry.Request{
				ID: requestID(c.Request().Header.Get(echo.HeaderXRequestID)), Method: c.Request().Method, Route: routeOf(c),
				RunID: runIDOf(c), Header: c.Request().Header,
				Public: strings.HasPrefix(c.Path(), hooksPath+"/"), Probe: isProbe(c.Path()),
			}
			c.Response().Header().Set(echo.HeaderXRequestID, r.ID)
			ctx, done := o.Telemetry.Request(c.Request().Context(), r)
			c.SetRequest(c.Request().WithContext(ctx))
			defer func() { // handlers panic to abort the connection
				waited, _ := c.Get(startWait).(time.Duration)
				took := done(c.Response().Status)
				if waitsForRun(c) {
					waited = took
				}
				o.logRequest(ctx, r, c.Response(), took, waited)
			}()
			if err := next(c); err != nil {
				c.Error(err) // sets the status
			}
			return nil
		}
	}
}

func (o Options) logRequest(
	ctx context.Context, r telemetry.Request, response *echo.Response, took, waited time.Duration,
) {
	level := slog.LevelDebug
	waits := isLongPoll(strings.TrimPrefix(r.Route, ui.Path)) || r.Public // a webhook may wait for the workflow's response
	if took-waited > slowRequest && !waits {
		level = slog.LevelWarn
	}
	o.Logger.Log(ctx, level, "request", "method", r.Method, "route", r.Route, "status", response.Status,
		"bytes", response.Size, "took", took)
}

// routeOf returns the route for metrics and logs, which tell the dashboard's requests from those of other clients.
func routeOf(c echo.Context) string {
	if auth.FromBrowser(c.Request()) {
		return ui.Path + c.Path()
	}
	return c.Path()
}

// safeRequestID matches request IDs that are safe to log.
var safeRequestID = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,64}$`)

// requestID returns the client's request ID if it is safe to log, or else a new one.
func requestID(sent string) string {
	if safeRequestID.MatchString(sent) {
		return sent
	}
	return ulid.Make().String()
}

// runIDOf returns the run ID in the path; empty for none.
func runIDOf(c echo.Context) entities.RunID {
	id := c.Param("runId")
	if id == "" && strings.HasPrefix(c.Path(), nativePath+"/runs/:id") {
		id = c.Param("id")
	}
	if !strings.HasPrefix(id, "wrun_") || entities.ValidateID("run ID", id) != nil {
		return ""
	}
	return entities.RunID(id)
}

func isProbe(route string) bool {
	return route == "/healthz" || route == "/readyz" || route == "/metrics"
}
