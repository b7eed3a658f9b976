package handlers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/contract/approval"
	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/entities/inbox"
	"github.com/stepwell-dev/stepwell/entities/kv"
	"github.com/stepwell-dev/stepwell/entities/message"
	hooks "github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/blob"
	"github.com/stepwell-dev/stepwell/eventlog/live"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/runfile"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/flow/goal"
	"github.com/stepwell-dev/stepwell/flow/registry"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/handlers/rest"
	"github.com/stepwell-dev/stepwell/handlers/telemetry"
	"github.com/stepwell-dev/stepwell/handlers/ui"
	"github.com/stepwell-dev/stepwell/handlers/webhook"
	"github.com/stepwell-dev/stepwell/handlers/webhook/signature"
	"github.com/stepwell-dev/stepwell/handlers/wire"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/hold"
	"github.com/stepwell-dev/stepwell/queue/pull"
	"github.com/stepwell-dev/stepwell/schema"
	"github.com/stepwell-dev/stepwell/starts/collection"
	"github.com/stepwell-dev/stepwell/starts/schedule"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

// databaseRetry is when clients should try again while the database is unavailable. Most failovers take several
// seconds, but a node that restarts takes one.
const databaseRetry = time.Second

// statuses maps errors to HTTP statuses and codes. The first match counts. Other errors are internal: clients get a
// fixed text.
var statuses = []struct {
	match  error
	status int
	code   string
}{
	{errTooManyStarts, http.StatusTooManyRequests, "too_many_starts"}, // first: it comes by the thousand
	{kv.ErrLimit, http.StatusBadRequest, "store_limit"},
	{wire.ErrVersion, http.StatusBadRequest, "world_version"},
	{wire.ErrUnknownFrame, http.StatusBadRequest, "unknown_frame"},
	{wire.ErrUnasked, http.StatusForbidden, "pull_unasked"},
	{entities.ErrSpecVersion, http.StatusBadRequest, "spec_version"},
	{wire.ErrUnknownValue, http.StatusBadRequest, "validation-error"},
	{message.ErrHasURL, http.StatusConflict, "deployment_has_url"},
	{message.ErrIsCatalog, http.StatusConflict, "workflow_is_catalog"},
	{message.ErrDeploymentRetired, http.StatusConflict, "flow_retired"},
	{message.ErrStepsOnly, http.StatusConflict, "deployment_steps_only"},
	{entities.ErrInvalid, http.StatusBadRequest, "invalid_request"},
	{codec.ErrTooLarge, http.StatusRequestEntityTooLarge, "too_large"},
	{codec.ErrMalformed, http.StatusBadRequest, "malformed"},
	{errBodyTooSlow, http.StatusRequestTimeout, "body_too_slow"},
	{errBodyIncomplete, http.StatusBadRequest, "malformed"},
	{entities.ErrWrongCell, http.StatusMisdirectedRequest, "wrong_cell"},
	{rest.ErrNotFound, http.StatusNotFound, "not_found"},
	{rest.ErrMethodNotAllowed, http.StatusMethodNotAllowed, "method_not_allowed"},
	{rest.ErrUnsupportedMediaType, http.StatusUnsupportedMediaType, "unsupported_media_type"},
	{auth.ErrUnauthorized, http.StatusUnauthorized, "unauthorized"},
	{auth.ErrForbidden, http.StatusForbidden, "forbidden"},
	{entities.ErrRunNotFound, http.StatusNotFound, "run_not_found"},
	{entities.ErrStepNotFound, http.StatusNotFound, "step_not_found"},
	{entities.ErrHookNotFound, http.StatusNotFound, "hook_not_found"},
	{inbox.ErrNotFound, http.StatusNotFound, "inbox_not_found"},
	{inbox.ErrUnanswered, http.StatusGone, "unanswered"},
	{hooks.ErrUnverified, http.StatusForbidden, "unverified"},
	{entities.ErrWaitNotFound, http.StatusNotFound, "wait_not_found"},
	{entities.ErrEventNotFound, http.StatusNotFound, "event_not_found"},
	{message.ErrDeploymentNotFound, http.StatusNotFound, "deployment_not_found"},
	{message.ErrLeaseNotFound, http.StatusNotFound, "lease_not_found"},
	{message.ErrMessageNotFound, http.StatusNotFound, "message_not_found"},
	{kv.ErrKeyNotFound, http.StatusNotFound, "store_key_not_found"},
	{entities.ErrStreamNotFound, http.StatusNotFound, "stream_not_found"},
	{entities.ErrStreamClosed, http.StatusConflict, "stream_closed"},
	{entities.ErrStreamLimit, http.StatusConflict, "stream_limit"},
	{read.ErrTooManyOrphans, http.StatusConflict, "too_many_orphan_streams"},
	{admin.ErrStartQuota, http.StatusTooManyRequests, "start_quota"},
	{admin.ErrStorageQuota, http.StatusTooManyRequests, "storage_quota"},
	{admin.ErrTooDeep, http.StatusConflict, "too_deep"},
	{admin.ErrTooManyDescendants, http.StatusTooManyRequests, "too_many_descendants"},
	{admin.ErrRootCancelled, http.StatusConflict, "root_cancelled"},
	{admin.ErrPaused, http.StatusServiceUnavailable, "project_paused"},
	{entities.ErrKeyTaken, http.StatusConflict, "key_taken"},
	{entities.ErrKeyReused, http.StatusConflict, "idempotency_mismatch"},
	{entities.ErrForkRefused, http.StatusConflict, "fork_refused"},
	{engine.ErrCheckRefused, http.StatusConflict, "check_refused"},
	{entities.ErrForkTooLarge, http.StatusRequestEntityTooLarge, "fork_too_large"},
	{flow.ErrPayloadTooLarge, http.StatusRequestEntityTooLarge, "payload_too_large"},
	{flow.ErrFaults, http.StatusUnprocessableEntity, "invalid_flow"},
	{schema.ErrViolations, http.StatusUnprocessableEntity, "schema_violated"},
	{schema.ErrCost, http.StatusUnprocessableEntity, "schema_cost"},
	{approval.ErrNotAllowed, http.StatusForbidden, "not_an_approver"},
	{approval.ErrKeyVoted, http.StatusConflict, "key_has_voted"},
	{approval.ErrVoted, http.StatusConflict, "has_voted"},
	{approval.ErrOver, http.StatusConflict, "approval_over"},
	{registry.ErrNotFound, http.StatusNotFound, "flow_not_found"},
	{registry.ErrTooMany, http.StatusConflict, "too_many_flows"},
	{registry.ErrCatalogNotFound, http.StatusNotFound, "catalog_not_found"},
	{registry.ErrTooManyVersions, http.StatusConflict, "too_many_versions"},
	{registry.ErrTooManyCatalogs, http.StatusConflict, "too_many_catalogs"},
	{registry.ErrTooManyPlans, http.StatusConflict, "too_many_plans"},
	{registry.ErrNameTaken, http.StatusConflict, "flow_name_taken"},
	{goal.ErrTooLarge, http.StatusUnprocessableEntity, "plan_too_large"},
	{goal.ErrUnreached, http.StatusUnprocessableEntity, "goals_unreached"},
	{registry.ErrSemantics, http.StatusServiceUnavailable, "flow_semantics"},
	{flow.ErrLog, http.StatusConflict, "flow_log"},
	{registry.ErrAliasNotFound, http.StatusNotFound, "alias_not_found"},
	{registry.ErrTaken, http.StatusConflict, "deployment_taken"},
	{registry.ErrInUse, http.StatusConflict, "flow_in_use"},
	{schedule.ErrNotFound, http.StatusNotFound, "schedule_not_found"},
	{schedule.ErrTooMany, http.StatusConflict, "too_many_schedules"},
	{collection.ErrNotFound, http.StatusNotFound, "collection_not_found"},
	{collection.ErrCollecting, http.StatusNotFound, "run_collecting"},
	{collection.ErrTooMany, http.StatusConflict, "too_many_collections"},
	{trigger.ErrNotFound, http.StatusNotFound, "trigger_not_found"},
	{trigger.ErrTooMany, http.StatusConflict, "too_many_triggers"},
	{encryption.ErrNoMasterKey, http.StatusConflict, "no_master_key"},
	{encryption.ErrNotEncrypted, http.StatusConflict, "not_encrypted"},
	{encryption.ErrTooManyKeys, http.StatusConflict, "too_many_data_keys"},
	{encryption.ErrNoRunKey, http.StatusConflict, "no_run_key"},
	{atrest.ErrShredded, http.StatusConflict, "payloads_shredded"},
	{upkeep.ErrNotEnded, http.StatusConflict, "run_not_ended"},
	{atrest.ErrUnavailable, http.StatusServiceUnavailable, "payloads_unavailable"},
	{atrest.ErrAltered, http.StatusInternalServerError, "payload_altered"},
	{limit.ErrFull, http.StatusTooManyRequests, "limit_full"},
	{limit.ErrNotFound, http.StatusNotFound, "limit_not_found"},
	{limit.ErrInUse, http.StatusConflict, "limit_in_use"},
	{limit.ErrTooMany, http.StatusConflict, "too_many_limits"},
	{limit.ErrPolicyNotFound, http.StatusNotFound, "policy_not_found"},
	{hold.ErrNotFound, http.StatusNotFound, "pause_not_found"},
	{hold.ErrNoWorkflow, http.StatusNotFound, "workflow_not_found"},
	{hold.ErrTooMany, http.StatusConflict, "too_many_pauses"},
	{admin.ErrSecretNotFound, http.StatusNotFound, "secret_not_found"},
	{admin.ErrSigningKeyNotFound, http.StatusNotFound, "signing_key_not_found"},
	{admin.ErrTooManySigningKeys, http.StatusConflict, "too_many_signing_keys"},
	{admin.ErrKeyNotFound, http.StatusNotFound, "key_not_found"},
	{admin.ErrProjectNotFound, http.StatusNotFound, "project_not_found"},
	{admin.ErrSessionNotFound, http.StatusNotFound, "session_not_found"},
	{ui.ErrNoFile, http.StatusNotFound, "not_found"},
	{webhook.ErrNotFound, http.StatusNotFound, "not_found"},
	{signature.ErrWrong, http.StatusUnauthorized, "wrong_signature"},
	{incoming.ErrTooMany, http.StatusTooManyRequests, "too_many_requests"},
	{webhook.ErrUnreachable, http.StatusBadGateway, "app_unreachable"},
	{webhook.ErrFailed, http.StatusUnprocessableEntity, "run_failed"},
	{webhook.ErrRefused, http.StatusServiceUnavailable, "start_refused"},
	{webhook.ErrUnverifiable, http.StatusServiceUnavailable, "unverifiable"},
	{entities.ErrSuperseded, http.StatusPreconditionFailed, "in-band-superseded"},
	{message.ErrStale, http.StatusConflict, "stale_invocation"},
	{eventlog.ErrGraceUnsupported, http.StatusConflict, "grace_unsupported"},
	{entities.ErrHookClaimed, http.StatusConflict, "hook-force-claimed"},
	{entities.ErrConflict, http.StatusConflict, codeConflict},
	{entities.ErrRunEnded, http.StatusGone, "run_ended"},
	{read.ErrCursorLost, http.StatusGone, "cursor_lost"},
	{entities.ErrNotYet, http.StatusTooEarly, "too_early"},
	{live.ErrTooMany, http.StatusTooManyRequests, "too_many_live"},
	{queue.ErrStopping, http.StatusServiceUnavailable, "stopping"},
	{queue.ErrNoCalls, http.StatusServiceUnavailable, "no_calls"},
	{pull.ErrTooMany, http.StatusTooManyRequests, "too_many_workers"},
	{runfile.ErrNotArchived, http.StatusNotFound, "run_not_archived"},
	{runfile.ErrUnavailable, http.StatusServiceUnavailable, "archive_unavailable"},
	{runfile.ErrDamaged, http.StatusInternalServerError, "archive_damaged"},
	{runfile.ErrTooLarge, http.StatusUnprocessableEntity, "archive_too_large"},
	{blob.ErrLost, http.StatusInternalServerError, "payload_lost"},
}

// problem is the client's view of an error, and an error itself.
type problem struct {
	status     int
	code       string
	message    string
	retryAfter time.Duration
	// details are machine-readable; nil if there are none.
	details map[string]any
}

func (p *problem) Error() string { return p.message }

// detailed is an error with machine-readable details.
type detailed interface {
	error
	Details() map[string]any
}

// redacted is an error with a text for clients. Its own text is only logged.
type redacted interface {
	error
	Public() string
}

// problemOf returns the client's view of an error.
func problemOf(err error) problem {
	for _, s := range statuses {
		if errors.Is(err, s.match) {
			p := problem{status: s.status, code: s.code, message: err.Error(), retryAfter: retryAfterOf(err)}
			if facts, ok := errors.AsType[detailed](err); ok {
				p.details = facts.Details()
			}
			if r, ok := errors.AsType[redacted](err); ok {
				p.message = r.Public()
			}
			return p
		}
	}
	if p, ok := errors.AsType[*problem](err); ok {
		return *p
	}
	if move, ok := pg.MoveOf(err); ok {
		return problemOfMove(move)
	}
	if pg.IsUnavailable(err) {
		return problem{
			status: http.StatusServiceUnavailable, code: "database_unavailable",
			message: "the database is unavailable: try again", retryAfter: databaseRetry,
		}
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return problem{
			status: http.StatusRequestEntityTooLarge, code: "too_large",
			message: "the body is larger than " + strconv.FormatInt(tooLarge.Limit, 10) + " bytes",
		}
	}
	if routing, ok := errors.AsType[*echo.HTTPError](err); ok {
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

// retryAfterOf returns when an error says that the request may be tried again; 0 if it does not.
func retryAfterOf(err error) time.Duration {
	if tooMany, ok := errors.AsType[*tooManyStartsError](err); ok {
		return tooMany.RetryAfter
	}
	if early, ok := errors.AsType[*entities.NotYetError](err); ok {
		return early.RetryAfter
	}
	if tooMany, ok := errors.AsType[*incoming.TooManyError](err); ok {
		return tooMany.RetryAfter
	}
	if tooMany, ok := errors.AsType[*live.TooManyError](err); ok {
		return tooMany.RetryAfter
	}
	if quota, ok := errors.AsType[*admin.QuotaError](err); ok {
		return quota.RetryAfter
	}
	if full, ok := errors.AsType[*limit.FullError](err); ok {
		return full.RetryAfter
	}
	return 0
}

// problemOfMove returns the client's view of a write that was refused because its project moves to another cell. Such
// a write is repeated there, or here if the move is given up.
func problemOfMove(m pg.Move) problem {
	if m.Done {
		return problemOf(&entities.WrongCellError{What: "project " + string(m.Project), Here: m.Here, In: m.Cell})
	}
	return problem{
		status: http.StatusServiceUnavailable, code: "project_moving", retryAfter: databaseRetry,
		message: fmt.Sprintf("project %s is moving to cell %s: try again", m.Project, m.Cell),
		details: map[string]any{"here": m.Here, "cell": m.Cell},
	}
}

// isFault reports whether operators need to know of an error. They have paused or are moving the project, and chosen
// the role of the server, themselves.
func isFault(err error, p problem) bool {
	if _, moving := pg.MoveOf(err); moving {
		return false
	}
	return p.status >= http.StatusInternalServerError && !errors.Is(err, admin.ErrPaused) &&
		!errors.Is(err, queue.ErrNoCalls)
}

// errorHandler answers with the client's view of an error, always as JSON: clients of the event endpoints parse nothing
// else (protocol §1.5).
func errorHandler(logger *slog.Logger) echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		ctx := c.Request().Context()
		p := problemOf(err)
		if isFault(err, p) && !errors.Is(ctx.Err(), context.Canceled) {
			logger.ErrorContext(ctx, "request failed",
				"method", c.Request().Method, "path", loggedPath(c), "error", err)
		}
		if c.Response().Committed {
			return // the response has begun
		}
		if p.retryAfter > 0 {
			// Rounded up, so that clients do not retry too early.
			c.Response().Header().Set(echo.HeaderRetryAfter, strconv.Itoa(int(math.Ceil(p.retryAfter.Seconds()))))
		}
		if err := c.JSON(p.status, envelope(c.Request().URL.Path, p, telemetry.RequestID(ctx))); err != nil {
			logger.DebugContext(ctx, "write error response", "error", err)
		}
	}
}

// loggedPath returns the request's path, or its route if the path contains a token: readers of a log must not be able
// to resume runs.
func loggedPath(c echo.Context) string {
	if strings.Contains(c.Path(), ":token") {
		return c.Path()
	}
	return c.Request().URL.Path
}

// readBySDK are the codes whose details the Workflow SDK reads, beside the code.
var readBySDK = map[string]bool{"hook-force-claimed": true, "in-band-superseded": true}

// envelope returns the body for a problem: in the form of the Workflow SDK under /sdk, in the native form elsewhere.
func envelope(path string, p problem, requestID string) any {
	type body struct {
		Code      string         `json:"code"`
		Message   string         `json:"message"`
		Details   map[string]any `json:"details,omitempty"`
		RequestID string         `json:"requestId,omitempty"`
	}
	if strings.HasPrefix(path, sdkPath+"/") {
		fields := map[string]any{"code": p.code, "message": p.message}
		if readBySDK[p.code] {
			maps.Copy(fields, p.details)
		}
		return fields
	}
	return struct {
		Error body `json:"error"`
	}{body{p.code, p.message, p.details, requestID}}
}
