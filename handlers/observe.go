package handlers

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/telemetry"
)

// slowRequest is how long a request may take before somebody should know.
const slowRequest = time.Second

// observe gives each request an ID, has it measured and traced, and logs it: those that are slow as a warning, and
// all for whoever looks closely. Errors of ours the error handler logs.
func observe(o Options) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := telemetry.Request{
				ID: requestID(c.Request().Header.Get(echo.HeaderXRequestID)), Method: c.Request().Method, Route: c.Path(),
				RunID: runIn(c), Header: c.Request().Header,
				Public: strings.HasPrefix(c.Path(), hooksPath+"/"), Probe: isProbe(c.Path()),
			}
			c.Response().Header().Set(echo.HeaderXRequestID, r.ID)
			ctx, done := o.Telemetry.Request(c.Request().Context(), r)
			c.SetRequest(c.Request().WithContext(ctx))
			defer func() { // a handler may panic to break the connection off
				o.logRequest(ctx, r, c.Response(), done(c.Response().Status))
			}()
			if err := next(c); err != nil {
				c.Error(err) // now, so that there is a status
			}
			return nil
		}
	}
}

func (o Options) logRequest(ctx context.Context, r telemetry.Request, answer *echo.Response, took time.Duration) {
	level := slog.LevelDebug
	if took > slowRequest && !waits(r.Route) && !r.Public { // a workflow may take its time to answer a webhook
		level = slog.LevelWarn
	}
	o.Logger.Log(ctx, level, "request", "method", r.Method, "route", r.Route, "status", answer.Status,
		"bytes", answer.Size, "took", took)
}

// requestID is the ID that the request came with, if that is fit for logs, or a new one.
func requestID(sent string) string {
	const limit = 64
	if sent == "" || len(sent) > limit || strings.ContainsFunc(sent, notInRequestID) {
		return ulid.Make().String()
	}
	return sent
}

func notInRequestID(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
}

// runIn is the run that the path is about; empty when it is about none.
func runIn(c echo.Context) entities.RunID {
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
	switch route {
	case "/healthz", "/readyz", "/metrics":
		return true
	default:
		return false
	}
}
