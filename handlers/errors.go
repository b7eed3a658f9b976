package handlers

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/rest"
	"github.com/stepwell-dev/stepwell/handlers/telemetry"
	"github.com/stepwell-dev/stepwell/handlers/webhook"
	"github.com/stepwell-dev/stepwell/handlers/webhook/signature"
	"github.com/stepwell-dev/stepwell/queue"
)

// statuses is the one table from errors to HTTP. The first match counts; what matches nothing is our own
// fault, and its text is nobody else's business.
var statuses = []struct {
	match  error
	status int
	code   string
}{
	{entities.ErrInvalid, http.StatusBadRequest, "invalid_request"},
	{codec.ErrTooLarge, http.StatusRequestEntityTooLarge, "too_large"},
	{codec.ErrMalformed, http.StatusBadRequest, "malformed"},
	{errBodyLost, http.StatusBadRequest, "malformed"},
	{rest.ErrNoPath, http.StatusNotFound, "not_found"},
	{rest.ErrNoMethod, http.StatusMethodNotAllowed, "method_not_allowed"},
	{rest.ErrMediaType, http.StatusUnsupportedMediaType, "unsupported_media_type"},
	{auth.ErrUnauthorized, http.StatusUnauthorized, "unauthorized"},
	{auth.ErrForbidden, http.StatusForbidden, "forbidden"},
	{entities.ErrRunNotFound, http.StatusNotFound, "run_not_found"},
	{entities.ErrStepNotFound, http.StatusNotFound, "step_not_found"},
	{entities.ErrHookNotFound, http.StatusNotFound, "hook_not_found"},
	{entities.ErrWaitNotFound, http.StatusNotFound, "wait_not_found"},
	{entities.ErrEventNotFound, http.StatusNotFound, "event_not_found"},
	{entities.ErrDeploymentNotFound, http.StatusNotFound, "deployment_not_found"},
	{entities.ErrLeaseNotFound, http.StatusNotFound, "lease_not_found"},
	{entities.ErrMessageNotFound, http.StatusNotFound, "message_not_found"},
	{entities.ErrStreamNotFound, http.StatusNotFound, "stream_not_found"},
	{entities.ErrKeyTaken, http.StatusConflict, "key_taken"},
	{entities.ErrKeyReused, http.StatusConflict, "idempotency_mismatch"},
	{entities.ErrSecretNotFound, http.StatusNotFound, "secret_not_found"},
	{entities.ErrSigningKeyNotFound, http.StatusNotFound, "signing_key_not_found"},
	{entities.ErrTooManySigningKeys, http.StatusConflict, "too_many_signing_keys"},
	{entities.ErrKeyNotFound, http.StatusNotFound, "key_not_found"},
	{entities.ErrProjectNotFound, http.StatusNotFound, "project_not_found"},
	{webhook.ErrNotFound, http.StatusNotFound, "not_found"},
	{signature.ErrWrong, http.StatusUnauthorized, "wrong_signature"},
	{webhook.ErrTooMany, http.StatusTooManyRequests, "too_many_requests"},
	{webhook.ErrUnreachable, http.StatusBadGateway, "app_unreachable"},
	{webhook.ErrUnverifiable, http.StatusServiceUnavailable, "unverifiable"},
	{entities.ErrStale, http.StatusConflict, "stale_invocation"},
	{entities.ErrConflict, http.StatusConflict, "conflict"},
	{entities.ErrRunEnded, http.StatusGone, "run_ended"},
	{entities.ErrNotYet, http.StatusTooEarly, "too_early"},
	{queue.ErrStopping, http.StatusServiceUnavailable, "stopping"},
}

// problem is what a client is told about an error.
type problem struct {
	status     int
	code       string
	message    string
	retryAfter time.Duration
	// details are facts for programs to read; nil when there are none.
	details map[string]any
}

// detailed is an error with facts for programs to read.
type detailed interface{ Details() map[string]any }

// discreet is an error whose text is for the log, and has another one for clients.
type discreet interface{ Public() string }

// problemOf finds what to tell a client about an error.
func problemOf(err error) problem {
	for _, s := range statuses {
		if errors.Is(err, s.match) {
			p := problem{status: s.status, code: s.code, message: err.Error()}
			if early := (*entities.NotYetError)(nil); errors.As(err, &early) {
				p.retryAfter = early.RetryAfter
			}
			if facts := detailed(nil); errors.As(err, &facts) {
				p.details = facts.Details()
			}
			if many := (*webhook.TooManyError)(nil); errors.As(err, &many) {
				p.retryAfter = many.RetryAfter
			}
			if secretive := discreet(nil); errors.As(err, &secretive) {
				p.message = secretive.Public()
			}
			return p
		}
	}
	if full := (*errOverloaded)(nil); errors.As(err, &full) {
		return problem{status: full.status, code: "overloaded", message: full.Error(), retryAfter: full.retryAfter}
	}
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return problem{
			status: http.StatusRequestEntityTooLarge, code: "too_large",
			message: "the body is larger than " + strconv.FormatInt(tooLarge.Limit, 10) + " bytes",
		}
	}
	if routing := (*echo.HTTPError)(nil); errors.As(err, &routing) {
		return problem{
			status: routing.Code, code: strings.ToLower(strings.ReplaceAll(http.StatusText(routing.Code), " ", "_")),
			message: http.StatusText(routing.Code),
		}
	}
	return problem{
		status: http.StatusInternalServerError, code: "internal",
		message: "internal error: the server's log has the details",
	}
}

// errorHandler answers with what [problemOf] says. Errors are JSON everywhere: the event endpoints'
// clients parse nothing else (protocol §1.5).
func errorHandler(logger *slog.Logger) echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		ctx := c.Request().Context()
		p := problemOf(err)
		if p.status >= http.StatusInternalServerError && !errors.Is(ctx.Err(), context.Canceled) {
			logger.ErrorContext(ctx, "request failed",
				"method", c.Request().Method, "path", loggedPath(c), "error", err)
		}
		if c.Response().Committed {
			return // too late to say anything
		}
		if p.retryAfter > 0 {
			// Rounded up: never a second too early.
			c.Response().Header().Set(echo.HeaderRetryAfter, strconv.Itoa(int(math.Ceil(p.retryAfter.Seconds()))))
		}
		if err := c.JSON(p.status, envelope(c.Request().URL.Path, p, telemetry.RequestID(ctx))); err != nil {
			logger.DebugContext(ctx, "answer with error", "error", err)
		}
	}
}

// loggedPath is the request's path, or its route where the path has a token: whoever reads a log must not resume runs.
func loggedPath(c echo.Context) string {
	if strings.Contains(c.Path(), ":token") {
		return c.Path()
	}
	return c.Request().URL.Path
}

// envelope is the body for a problem: what the Workflow SDK's clients read below /sdk, our own elsewhere.
func envelope(path string, p problem, requestID string) any {
	type body struct {
		Code      string         `json:"code"`
		Message   string         `json:"message"`
		Details   map[string]any `json:"details,omitempty"`
		RequestID string         `json:"requestId,omitempty"`
	}
	if strings.HasPrefix(path, sdkPath+"/") {
		return body{Code: p.code, Message: p.message}
	}
	return struct {
		Error body `json:"error"`
	}{body{p.code, p.message, p.details, requestID}}
}
