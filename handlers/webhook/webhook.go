// Package webhook serves /hooks/{token} and, for projects other than the default one, /hooks/{project}/{token}: public
// endpoints through which other systems resume waiting runs, or start runs by triggers. They need no API key: the token
// authorizes the request, and the hook or trigger may require a signature as well. A run that the server drives
// receives the request as a payload, and one that a trigger starts as its input. For a run of the Workflow SDK, the
// request is forwarded to the app's own webhook route.
//
// A request passes these stations: its webhook is found (find.go), within rates (limit.go); its body is received within
// the share of its project; it is recorded, forwarded, or starts a run; and it may wait for its response without
// holding up others.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/sync/semaphore"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/handlers/webhook/signature"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/starts/trigger"
	"github.com/stepwell-dev/stepwell/starts/trigger/triggers"
)

// MaxBody limits the bytes of a request's body.
const MaxBody = 5 << 20

var (
	// ErrNotFound is returned for tokens that no open webhook has. It does not tell whether one ever had it.
	ErrNotFound = errors.New("Not Found") //nolint:staticcheck // the same text as for unknown routes
	// ErrUnverifiable is returned when the secret that the hook requires does not exist or is unusable.
	ErrUnverifiable = errors.New("the webhook cannot verify requests now; try again later")
	// ErrRefused is returned when the trigger of the webhook cannot start its run. Its history tells why.
	ErrRefused = errors.New("the webhook cannot start its workflow now; try again later")
	// ErrFailed is returned when the run that a request has started has failed, and has not responded.
	ErrFailed = errors.New("the workflow has failed or was cancelled; its log says why")
	// ErrUnreachable is returned when an app of the Workflow SDK does not respond.
	ErrUnreachable = errors.New("the webhook's app cannot be reached now; try again later")
)

// redactedError is an error whose cause appears in the log, but not in the response.
type redactedError struct{ public, cause error }

func (e *redactedError) Error() string { return fmt.Sprintf("%v: %v", e.public, e.cause) }

// Unwrap hides the cause, so that it does not determine the status.
func (e *redactedError) Unwrap() error { return e.public }

// Public returns the text for the response.
func (e *redactedError) Public() string { return e.public.Error() }

// Server serves webhooks.
type Server struct {
	Log     *eventlog.Log
	Streams *read.Streams
	Secrets *admin.Secrets
	Queue   *queue.Queue
	// Triggers starts the runs of triggers.
	Triggers *triggers.Triggers
	// Reader runs the queries that read hooks and runs.
	Reader pg.Querier
	// Draining is done when the server is about to stop. Requests then stop waiting for a response.
	Draining context.Context
	// Allowed lists the non-public addresses that apps may have.
	Allowed egress.Allowed
	// OnForward adds headers to requests that are forwarded to apps. It may be nil.
	OnForward func(context.Context, http.Header)
	// Rates limits the requests per second.
	Rates Rates
	// Cell is that of the server; empty for none.
	Cell entities.Cell

	limiter *limiter
	lookups *semaphore.Weighted
	waits   waits
	proxy   http.RoundTripper
}

// Register adds the endpoints to the group. Admit limits the resources that concurrent requests use; it may call
// [ProjectOf].
func (s *Server) Register(g *echo.Group, admit echo.MiddlewareFunc) {
	s.limiter, s.proxy = newLimiter(s.Rates), newTransport(s.Allowed)
	s.lookups, s.waits = semaphore.NewWeighted(lookups), newWaits()
	for _, path := range []string{"/:token", "/:project/:token"} {
		g.Any(path, s.receive, isolate, limitBody, s.resolve, admit)
	}
}

// isolate makes browsers treat responses as another origin than the rest of this server. It closes the connections of
// requests for no webhook, whether or not their bodies were read, so that these requests look alike.
func isolate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		protect(c.Response().Header())
		err := next(c)
		if errors.Is(err, ErrNotFound) {
			c.Response().Header().Set(echo.HeaderConnection, "close")
		}
		return err
	}
}

func protect(h http.Header) {
	h.Add("Content-Security-Policy", "sandbox allow-forms allow-scripts allow-popups")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer") // the token is in the URL
}

// limitBody limits the size of bodies.
func limitBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if r.ContentLength > MaxBody {
			return &http.MaxBytesError{Limit: MaxBody}
		}
		r.Body = http.MaxBytesReader(c.Response().Writer, r.Body, MaxBody)
		return next(c)
	}
}

// call is a request to a webhook.
type call struct {
	echo.Context
	target

	body []byte
	at   time.Time
}

// receive handles a request whose webhook has been found.
func (s *Server) receive(c echo.Context) error {
	body, err := io.ReadAll(c.Request().Body)
	if err != nil {
		return fmt.Errorf("read body: %w", err)
	}
	r := call{Context: c, target: targetOf(c), body: body, at: s.Log.Now()}
	if r.trigger != nil {
		spec := entities.WebhookSpec{Verify: r.trigger.Verify, Secret: r.trigger.Secret}
		return s.verified(r, spec, func(v triggers.Request) error { return s.start(r, v) })
	}
	if r.run.Driver == entities.DriverClient {
		return s.forward(r)
	}
	return s.record(r)
}

// addressOf returns the project and the token in the path. A path without a project is in the default project. Tokens
// are unique per project only.
func addressOf(c echo.Context) (entities.Project, string, error) {
	token, err := incoming.PathParam(c, "token")
	if err != nil {
		return "", "", err
	}
	project := string(entities.DefaultProject)
	if slices.Contains(c.ParamNames(), "project") {
		if project, err = incoming.PathParam(c, "project"); err != nil {
			return "", "", err
		}
		if err := entities.ValidateID("project", project); err != nil {
			return "", "", err
		}
	}
	if token == "." || token == ".." {
		return "", "", ErrNotFound // a dot segment would change the path of the forwarded request
	}
	return entities.Project(project), token, entities.ValidateToken(token)
}

// notFound turns the errors for a missing or disposed hook, an ended run and a missing trigger into [ErrNotFound].
func notFound(err error) error {
	for _, gone := range []error{
		entities.ErrHookNotFound, entities.ErrRunNotFound, entities.ErrRunEnded, trigger.ErrNotFound,
	} {
		if errors.Is(err, gone) {
			return ErrNotFound
		}
	}
	return err
}

// spec reads the hook's configuration from the log.
func (s *Server) spec(ctx context.Context, hook entities.Hook) (entities.WebhookSpec, error) {
	at := read.Position{RunID: hook.RunID, Seq: hook.CreatedSeq}
	events, err := s.Log.EventsAt(ctx, []read.Position{at}, read.WithoutPayloads)
	if err != nil {
		return entities.WebhookSpec{}, err
	}
	e, ok := events[at]
	switch {
	case !ok:
		return entities.WebhookSpec{}, ErrNotFound // retention deleted the run meanwhile
	case e.Data.Webhook == nil:
		return entities.WebhookSpec{}, nil
	default:
		return *e.Data.Webhook, nil
	}
}

// record verifies a request, appends it to the run's log, and answers it.
func (s *Server) record(r call) error {
	ctx := r.Request().Context()
	spec, err := s.spec(ctx, r.hook)
	if err != nil {
		return err
	}
	return s.verified(r, spec, func(v triggers.Request) error {
		_, err := s.Log.Append(ctx, r.hook.Project, eventlog.Request{
			RunID: r.hook.RunID, Type: entities.EventHookReceived, CorrelationID: string(r.hook.ID),
			SpecVersion: entities.SpecDriven, Payload: v.Payload,
			Data: entities.EventData{
				ResumeID: v.ID, ResumeDigest: v.Digest, Via: webhook.ViaWebhook, Verified: spec.Verify,
			},
		})
		if errors.Is(err, entities.ErrConflict) {
			return entities.ErrKeyReused // without the details, which describe the log
		}
		if err != nil {
			return notFound(err)
		}
		return s.answer(r, v.ID, time.Duration(spec.RespondMS)*time.Millisecond)
	})
}

// verified verifies a request, and has it accepted unless it is no event: then it is answered.
func (s *Server) verified(r call, spec entities.WebhookSpec, accept func(triggers.Request) error) error {
	fields := jsonFields(r.body)
	id, digest, err := s.identify(r.Request().Context(), r, spec, fields)
	if err != nil {
		return err
	}
	if challenge := challengeOf(spec, fields); challenge != "" {
		return r.String(http.StatusOK, challenge)
	}
	payload, err := encodePayload(r, id)
	if err != nil {
		return err
	}
	return accept(triggers.Request{ID: id, Digest: digest, Payload: payload})
}

// challengeOf returns the text with which Slack verifies a URL. Its request is no event. It is empty for others.
func challengeOf(spec entities.WebhookSpec, fields signature.Fields) string {
	if spec.Verify != string(webhook.Slack) || fields("type") != "url_verification" {
		return ""
	}
	return fields("challenge")
}

// start starts the run of the trigger of a verified request, and answers with the run.
func (s *Server) start(r call, v triggers.Request) error {
	done, err := s.Triggers.Receive(r.Request().Context(), *r.trigger, v)
	// A failure is that of a busy project or of a full limit, whose key is not for the sender.
	busy, isBusy := errors.AsType[*queue.Failure](err)
	quota, isQuota := errors.AsType[*admin.QuotaError](err)
	switch {
	case isQuota && errors.Is(quota, admin.ErrPaused): // 503, which all senders try again
		return quota
	case isBusy:
		return tooMany(busy.After)
	case errors.Is(err, entities.ErrKeyReused):
		return entities.ErrKeyReused // without the details, which describe the log
	case err != nil:
		return notFound(err)
	case done.Decision == trigger.Refused:
		return &redactedError{ErrRefused, fmt.Errorf("trigger %s, request %s: %s", r.trigger.Name, v.ID, done.Reason)}
	}
	return s.answerWithRun(r, startedJSON{v.ID, done.RunID})
}

// startedJSON is the answer to a request to the webhook of a trigger. The run is missing if the condition is false.
type startedJSON struct {
	Request string         `json:"request"`
	RunID   entities.RunID `json:"runId,omitempty"`
}

// identify verifies a request and returns its ID, which all retries of a delivery share. If digest is not empty,
// retries must have the same digest too.
func (s *Server) identify(
	ctx context.Context, r call, spec entities.WebhookSpec, fields signature.Fields,
) (id, digest string, err error) {
	header := r.Request().Header
	if spec.Verify == "" {
		key := cmp.Or(header.Get("Idempotency-Key"), header.Get("Webhook-Id"))
		return requestID(r.target, key), incoming.Digest(r.body), nil
	}
	scheme, ok := signature.Of(webhook.Scheme(spec.Verify))
	if !ok {
		return "", "", &redactedError{ErrUnverifiable, fmt.Errorf("webhook %s: unknown signature scheme %q",
			r.identity(), spec.Verify)}
	}
	if err := s.verify(ctx, scheme, spec, r); err != nil {
		return "", "", err
	}
	if spec.Verify == string(webhook.Generic) {
		digest = incoming.Digest(r.body) // the sender chooses this scheme's key, and may reuse it
	}
	return requestID(r.target, scheme.Delivery(header, fields)), digest, nil
}

// verify fails with [signature.ErrWrong], or with [ErrUnverifiable] if the secret is missing or unusable.
func (s *Server) verify(ctx context.Context, scheme signature.Scheme, spec entities.WebhookSpec, r call) error {
	values, err := s.Secrets.Values(ctx, r.project, spec.Secret)
	if err == nil {
		secrets := make([]string, len(values))
		for i, v := range values {
			secrets[i] = string(v)
		}
		err = scheme.Verify(secrets, r.Request().Header, r.body, r.at)
	}
	if errors.Is(err, admin.ErrSecretNotFound) || errors.Is(err, signature.ErrUnusable) {
		return &redactedError{ErrUnverifiable, fmt.Errorf("webhook %s, secret %s: %w",
			r.identity(), spec.Secret, err)}
	}
	return err
}
