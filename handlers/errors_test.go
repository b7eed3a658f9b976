package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
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
	"github.com/stepwell-dev/stepwell/handlers/ui"
	"github.com/stepwell-dev/stepwell/handlers/webhook"
	"github.com/stepwell-dev/stepwell/handlers/webhook/signature"
	"github.com/stepwell-dev/stepwell/handlers/wire"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/hold"
	"github.com/stepwell-dev/stepwell/queue/pull"
	"github.com/stepwell-dev/stepwell/schema"
	"github.com/stepwell-dev/stepwell/starts/collection"
	"github.com/stepwell-dev/stepwell/starts/schedule"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

// messageOf decodes the body of an error, as clients do under /sdk and elsewhere.
func messageOf(t *testing.T, path string, body []byte) (code, text string) {
	t.Helper()
	type inner struct {
		Code    string         `json:"code"`
		Message string         `json:"message"`
		Details map[string]any `json:"details"`
		// ClaimedBy is for the SDK, which reads it beside the code.
		ClaimedBy map[string]any `json:"claimedBy"`
	}
	type ours struct {
		inner

		RequestID string `json:"requestId"`
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	var outer struct {
		Error ours `json:"error"`
	}
	var into any = &outer
	sdk := strings.HasPrefix(path, "/sdk/")
	if sdk {
		into = &outer.Error.inner // clients of the SDK know only this
	}
	if err := decoder.Decode(into); err != nil {
		t.Errorf("%s: body %q: %v", path, body, err)
	}
	if !sdk && outer.Error.RequestID == "" {
		t.Errorf("%s: body %q has no request ID", path, body)
	}
	return outer.Error.Code, outer.Error.Message
}

// TestStatusOfEveryError checks each row of the table over HTTP, under /sdk and elsewhere (protocol §1.5).
func TestStatusOfEveryError(t *testing.T) {
	t.Parallel()
	want := []struct {
		err    error
		status int
		code   string
	}{
		{&tooManyStartsError{Waiting: 1000, RetryAfter: 1500 * time.Millisecond}, 429, "too_many_starts"},
		{&kv.LimitError{}, 400, "store_limit"},
		{wire.ErrVersion, 400, "world_version"},
		{wire.ErrUnknownFrame, 400, "unknown_frame"},
		{wire.ErrUnasked, 403, "pull_unasked"},
		{entities.CheckSpecVersion(1000), 400, "spec_version"},
		{wire.ErrUnknownValue, 400, "validation-error"},
		{message.ErrHasURL, 409, "deployment_has_url"},
		{message.ErrIsCatalog, 409, "workflow_is_catalog"},
		{message.ErrDeploymentRetired, 409, "flow_retired"},
		{message.ErrStepsOnly, 409, "deployment_steps_only"},
		{entities.Invalid("no"), 400, "invalid_request"},
		{&codec.Error{Kind: codec.ErrTooLarge, Reason: "much"}, 413, "too_large"},
		{&codec.Error{Kind: codec.ErrMalformed, Reason: "bad"}, 400, "malformed"},
		{fmt.Errorf("read body: %w", errBodyTooSlow), 408, "body_too_slow"},
		{fmt.Errorf("%w: %w", errBodyIncomplete, io.ErrUnexpectedEOF), 400, "malformed"},
		{&entities.WrongCellError{What: "the key", Here: "eu1", In: "us1"}, 421, "wrong_cell"},
		{rest.ErrNotFound, 404, "not_found"},
		{rest.ErrMethodNotAllowed, 405, "method_not_allowed"},
		{rest.ErrUnsupportedMediaType, 415, "unsupported_media_type"},
		{auth.ErrUnauthorized, 401, "unauthorized"},
		{&auth.ForbiddenError{Role: admin.RoleRead, Allowed: []admin.Role{admin.RoleAdmin}}, 403, "forbidden"},
		{entities.ErrRunNotFound, 404, "run_not_found"},
		{entities.ErrStepNotFound, 404, "step_not_found"},
		{entities.ErrHookNotFound, 404, "hook_not_found"},
		{inbox.ErrNotFound, 404, "inbox_not_found"},
		{inbox.ErrUnanswered, 410, "unanswered"},
		{&hooks.UnverifiedError{Hook: "h", Scheme: "github"}, 403, "unverified"},
		{entities.ErrWaitNotFound, 404, "wait_not_found"},
		{entities.ErrEventNotFound, 404, "event_not_found"},
		{message.ErrDeploymentNotFound, 404, "deployment_not_found"},
		{message.ErrLeaseNotFound, 404, "lease_not_found"},
		{message.ErrMessageNotFound, 404, "message_not_found"},
		{kv.ErrKeyNotFound, 404, "store_key_not_found"},
		{entities.ErrStreamNotFound, 404, "stream_not_found"},
		{entities.ErrStreamClosed, 409, "stream_closed"},
		{entities.ErrStreamLimit, 409, "stream_limit"},
		{read.ErrTooManyOrphans, 409, "too_many_orphan_streams"},
		{&admin.QuotaError{Reason: admin.ErrStartQuota, RetryAfter: 1500 * time.Millisecond}, 429, "start_quota"},
		{&admin.QuotaError{Reason: admin.ErrStorageQuota}, 429, "storage_quota"},
		{&admin.QuotaError{Reason: admin.ErrTooDeep}, 409, "too_deep"},
		{&admin.QuotaError{Reason: admin.ErrTooManyDescendants}, 429, "too_many_descendants"},
		{&admin.QuotaError{Reason: admin.ErrRootCancelled}, 409, "root_cancelled"},
		{&admin.QuotaError{Reason: admin.ErrPaused, RetryAfter: 1500 * time.Millisecond}, 503, "project_paused"},
		{&entities.KeyTakenError{Key: "k", RunID: "wrun_1"}, 409, "key_taken"},
		{entities.ErrKeyReused, 409, "idempotency_mismatch"},
		{&entities.ForkRefusedError{Reason: entities.ForkLimits, Text: "try again"}, 409, "fork_refused"},
		{&engine.CheckRefusedError{Reason: "r"}, 409, "check_refused"},
		{entities.ErrForkTooLarge, 413, "fork_too_large"},
		{flow.CheckSize(make([]byte, flow.MaxPayload+1)), 413, "payload_too_large"},
		{flow.Faults{{Line: 1, Column: 1, Code: flow.CodeMissing, Message: "the document is empty"}}, 422, "invalid_flow"},
		{schema.Violations{{Path: "/a", Message: "missing"}}, 422, "schema_violated"},
		{schema.ErrCost, 422, "schema_cost"},
		{approval.ErrNotAllowed, 403, "not_an_approver"},
		{approval.ErrKeyVoted, 409, "key_has_voted"},
		{approval.ErrVoted, 409, "has_voted"},
		{approval.ErrOver, 409, "approval_over"},
		{registry.ErrNotFound, 404, "flow_not_found"},
		{registry.ErrTooMany, 409, "too_many_flows"},
		{registry.ErrCatalogNotFound, 404, "catalog_not_found"},
		{registry.ErrTooManyVersions, 409, "too_many_versions"},
		{registry.ErrTooManyCatalogs, 409, "too_many_catalogs"},
		{registry.ErrTooManyPlans, 409, "too_many_plans"},
		{registry.ErrNameTaken, 409, "flow_name_taken"},
		{goal.ErrTooLarge, 422, "plan_too_large"},
		{&goal.Unreached{}, 422, "goals_unreached"},
		{registry.ErrSemantics, 503, "flow_semantics"},
		{flow.ErrLog, 409, "flow_log"},
		{registry.ErrAliasNotFound, 404, "alias_not_found"},
		{registry.ErrTaken, 409, "deployment_taken"},
		{registry.ErrInUse, 409, "flow_in_use"},
		{schedule.ErrNotFound, 404, "schedule_not_found"},
		{schedule.ErrTooMany, 409, "too_many_schedules"},
		{collection.ErrNotFound, 404, "collection_not_found"},
		{&collection.PendingError{}, 404, "run_collecting"},
		{collection.ErrTooMany, 409, "too_many_collections"},
		{trigger.ErrNotFound, 404, "trigger_not_found"},
		{trigger.ErrTooMany, 409, "too_many_triggers"},
		{encryption.ErrNoMasterKey, 409, "no_master_key"},
		{encryption.ErrNotEncrypted, 409, "not_encrypted"},
		{encryption.ErrTooManyKeys, 409, "too_many_data_keys"},
		{encryption.ErrNoRunKey, 409, "no_run_key"},
		{atrest.ErrShredded, 409, "payloads_shredded"},
		{upkeep.ErrNotEnded, 409, "run_not_ended"},
		{encryption.ErrUnavailable, 503, "payloads_unavailable"},
		{atrest.ErrAltered, 500, "payload_altered"},
		{&limit.FullError{RetryAfter: 1500 * time.Millisecond}, 429, "limit_full"},
		{limit.ErrNotFound, 404, "limit_not_found"},
		{limit.ErrInUse, 409, "limit_in_use"},
		{limit.ErrTooMany, 409, "too_many_limits"},
		{limit.ErrPolicyNotFound, 404, "policy_not_found"},
		{hold.ErrNotFound, 404, "pause_not_found"},
		{hold.ErrNoWorkflow, 404, "workflow_not_found"},
		{hold.ErrTooMany, 409, "too_many_pauses"},
		{admin.ErrSecretNotFound, 404, "secret_not_found"},
		{admin.ErrSigningKeyNotFound, 404, "signing_key_not_found"},
		{admin.ErrTooManySigningKeys, 409, "too_many_signing_keys"},
		{admin.ErrKeyNotFound, 404, "key_not_found"},
		{admin.ErrProjectNotFound, 404, "project_not_found"},
		{admin.ErrSessionNotFound, 404, "session_not_found"},
		{ui.ErrNoFile, 404, "not_found"},
		{webhook.ErrNotFound, 404, "not_found"},
		{signature.ErrWrong, 401, "wrong_signature"},
		{&incoming.TooManyError{RetryAfter: 1500 * time.Millisecond}, 429, "too_many_requests"},
		{webhook.ErrUnreachable, 502, "app_unreachable"},
		{webhook.ErrFailed, 422, "run_failed"},
		{webhook.ErrRefused, 503, "start_refused"},
		{webhook.ErrUnverifiable, 503, "unverifiable"},
		{entities.ErrSuperseded, 412, "in-band-superseded"},
		{message.ErrStale, 409, "stale_invocation"},
		{eventlog.ErrGraceUnsupported, 409, "grace_unsupported"},
		{&entities.HookClaimedError{}, 409, "hook-force-claimed"},
		{&entities.TransitionError{Kind: "step", Refusal: entities.Conflict}, 409, "conflict"},
		{&entities.TransitionError{Kind: "run", Refusal: entities.Ended}, 410, "run_ended"},
		{&read.CursorLostError{}, 410, "cursor_lost"},
		{&entities.NotYetError{StepID: "step_1", RetryAfter: 1500 * time.Millisecond}, 425, "too_early"},
		{&live.TooManyError{RetryAfter: 1500 * time.Millisecond}, 429, "too_many_live"},
		{queue.ErrStopping, 503, "stopping"},
		{queue.ErrNoCalls, 503, "no_calls"},
		{pull.ErrTooMany, 429, "too_many_workers"},
		{runfile.ErrNotArchived, 404, "run_not_archived"},
		{runfile.ErrUnavailable, 503, "archive_unavailable"},
		{runfile.ErrDamaged, 500, "archive_damaged"},
		{runfile.ErrTooLarge, 422, "archive_too_large"},
		{blob.ErrLost, 500, "payload_lost"},
	}
	check.Equal(t, "rows of this test", len(want), len(statuses))
	e, _, logged := newEcho(t, "")
	for i, row := range statuses {
		tt := want[i]
		if !errors.Is(tt.err, row.match) {
			t.Fatalf("row %d is %q, this test has %q", i, row.match, tt.err)
		}
		for _, root := range []string{"/sdk/", "/v1/", "/"} {
			path := fmt.Sprintf("%serror/%d", root, i)
			e.GET(path, func(echo.Context) error { return fmt.Errorf("do it: %w", tt.err) })
			got := serve(e, http.MethodGet, path)
			code, text := messageOf(t, path, got.Body.Bytes())
			if got.Code != tt.status || code != tt.code || text != "do it: "+tt.err.Error() {
				t.Errorf("%s: got %d %s %q, want %d %s with the error's text", path, got.Code, code, text, tt.status, tt.code)
			}
			retryAfter := ""
			switch tt.code {
			case "storage_quota", "too_many_descendants", "too_many_workers": // nobody knows when they have room
			case "project_paused":
				retryAfter = "2"
			default:
				if tt.status == http.StatusTooEarly || tt.status == http.StatusTooManyRequests {
					retryAfter = "2" // rounded up
				}
			}
			check.Equal(t, fmt.Sprintf("%s: Retry-After", path), got.Header().Get("Retry-After"), retryAfter)
		}
	}
	for line := range strings.Lines(logged.String()) {
		ours := func(err error) bool { return strings.Contains(line, err.Error()) }
		if ours(webhook.ErrUnreachable) || ours(webhook.ErrUnverifiable) || ours(webhook.ErrRefused) ||
			ours(queue.ErrStopping) || ours(registry.ErrSemantics) || ours(blob.ErrLost) ||
			ours(atrest.ErrUnavailable) || ours(atrest.ErrAltered) ||
			ours(runfile.ErrUnavailable) || ours(runfile.ErrDamaged) {
			continue // operators need to know
		}
		t.Errorf("logged a client's error: %s", line)
	}
}

// TestInternalErrorsAreOnlyLogged checks that clients do not see their text.
func TestInternalErrorsAreOnlyLogged(t *testing.T) {
	t.Parallel()
	e, pool, logged := newEcho(t, "")
	e.GET("/sdk/panic", func(echo.Context) error { panic("secret of a panic") })
	e.GET("/v1/http", func(echo.Context) error { return errors.New("secret of an error") })
	pool.Close()
	for path, secret := range map[string]string{
		"/sdk/v2/runs/wrun_1": "closed pool", "/v1/deployments": "closed pool", "/sdk/v2/hooks?token=x": "closed pool",
		"/sdk/panic": "secret of a panic", "/v1/http": "secret of an error",
	} {
		got := serve(e, http.MethodGet, path)
		code, text := messageOf(t, path, got.Body.Bytes())
		if got.Code != http.StatusInternalServerError || code != "internal" ||
			text != "internal error: the server's log has the details" {
			t.Errorf("%s: got %d %s %q, want 500 without details", path, got.Code, code, text)
		}
		where, _, _ := strings.Cut(path, "?")
		if log := logged.String(); !strings.Contains(log, secret) || !strings.Contains(log, "path="+where) {
			t.Errorf("the log lacks %q at %s: %s", secret, where, log)
		}
	}
}

func TestUnknownRoutesAreRejected(t *testing.T) {
	t.Parallel()
	e, _, logged := newEcho(t, "")
	for _, tt := range []struct {
		method, path string
		status       int
		code         string
	}{
		{http.MethodGet, "/", 404, "not_found"},
		{http.MethodGet, "/nothing", 404, "not_found"},
		{http.MethodGet, "/sdk/v9/runs", 404, "not_found"},
		{http.MethodPost, "/sdk/v1/runs/create", 404, "not_found"}, // legacy
		{http.MethodGet, "/v1/nothing", 404, "not_found"},
		// In a group with authentication, an unknown method is an unknown route.
		{http.MethodDelete, "/sdk/v2/runs", 404, "not_found"},
		{http.MethodGet, "/sdk/queues-proxy/api/v3/topic/t", 404, "not_found"},
		{http.MethodPost, "/v1/deployments/x", 405, "method_not_allowed"},
		{http.MethodPost, "/healthz", 405, "method_not_allowed"},
	} {
		got := serve(e, tt.method, tt.path)
		code, text := messageOf(t, tt.path, got.Body.Bytes())
		if got.Code != tt.status || code != tt.code || text == "" {
			t.Errorf("%s %s: got %d %s %q, want %d %s", tt.method, tt.path, got.Code, code, text, tt.status, tt.code)
		}
	}
	if logged.String() != "" {
		t.Errorf("logged: %s", logged)
	}
}

// TestUnavailableDatabaseIsRetryable checks that all clients are told to try again, and not why.
func TestUnavailableDatabaseIsRetryable(t *testing.T) {
	t.Parallel()
	e, _, logged := newEcho(t, "")
	for code, secret := range map[string]string{
		"25006": "read-only", "57P01": "shutdown", "53300": "full", "08006": "gone",
	} {
		for _, root := range []string{"/sdk/", "/v1/", "/"} {
			path := root + "away/" + code
			e.GET(path, func(echo.Context) error {
				return fmt.Errorf("do it: %w", &pgconn.PgError{Code: code, Message: secret})
			})
			got := serve(e, http.MethodGet, path)
			errorCode, text := messageOf(t, path, got.Body.Bytes())
			if got.Code != http.StatusServiceUnavailable || errorCode != "database_unavailable" ||
				text != "the database is unavailable: try again" || got.Header().Get("Retry-After") != "1" {
				t.Errorf("%s: got %d %s %q, Retry-After %q", path, got.Code, errorCode, text, got.Header().Get("Retry-After"))
			}
			if log := logged.String(); !strings.Contains(log, secret) || !strings.Contains(log, "path="+path) {
				t.Errorf("the log lacks %q at %s: %s", secret, path, log)
			}
		}
	}
}

// TestMovesAreTold: a write that is refused because its project moves is to be repeated, or sent to the other cell.
func TestMovesAreTold(t *testing.T) {
	t.Parallel()
	for sqlState, want := range map[string]problem{
		"SWM01": {status: 503, code: "project_moving", retryAfter: time.Second, message: "project shop is moving to cell us1: try again"},
		"SWM02": {status: 421, code: "wrong_cell", message: (&entities.WrongCellError{What: "project shop", Here: "eu1", In: "us1"}).Error()},
	} {
		err := fmt.Errorf("append: %w", &pgconn.PgError{
			Code: sqlState, Detail: `{"project": "shop", "here": "eu1", "cell": "us1"}`,
		})
		got := problemOf(err)
		if got.details["cell"] != entities.Cell("us1") || isFault(err, got) {
			t.Errorf("%s: got %+v", sqlState, got)
		}
		if got.details = nil; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", sqlState, got, want)
		}
	}
}
