// Package webhook serves /hooks/{token} and, for other projects than the default one, /hooks/{project}/{token}: the
// door through which the world outside resumes runs that wait for it. There is no key; whoever knows the token of a
// hook that is a webhook, and can sign if the hook demands it, is let in. A run that the server continues gets the
// request as a payload. One of the Workflow SDK gets it passed to its app's own route for webhooks.
//
// It imports packages entities, eventlog, queue, queue/contract, queue/egress and handlers/webhook/signature.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/webhook/signature"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

const (
	// MaxBody is how many bytes a request's body may have.
	MaxBody = 5 << 20
	// bodyTime is how long a body may take to come.
	bodyTime = 30 * time.Second
)

var (
	// ErrNotFound is of tokens that no webhook has, or none any more; which of them, nobody is told.
	ErrNotFound = errors.New("Not Found") //nolint:staticcheck // as it is of routes that do not exist
	// ErrUnverifiable is of a request that came when the hook's secret was not there to verify it.
	ErrUnverifiable = errors.New("the webhook cannot verify requests now; try again later")
	// ErrUnreachable is of an app of the Workflow SDK that did not answer.
	ErrUnreachable = errors.New("the webhook's app cannot be reached now; try again later")
)

// discreet is an error with a cause that is for the log alone.
type discreet struct{ public, cause error }

func (e *discreet) Error() string { return fmt.Sprintf("%v: %v", e.public, e.cause) }

// Unwrap does not know the cause, whose own kind means nothing to whoever made the request.
func (e *discreet) Unwrap() error { return e.public }

// Public is what a stranger may be told.
func (e *discreet) Public() string { return e.public.Error() }

// Server answers the world outside.
type Server struct {
	Log     *eventlog.Log
	Streams *read.Streams
	Secrets *admin.Secrets
	Queue   *queue.Queue
	// Reader is where hooks and runs are read from.
	Reader pg.Querier
	// Draining ends when the server is about to stop: nobody waits for a response any longer.
	Draining context.Context
	// Allowed are the addresses besides public ones where apps may be.
	Allowed egress.Allowed
	// Passing, if there is one, adds to the headers of requests that are passed on to apps.
	Passing func(context.Context, http.Header)
	// Rates bound how many requests are let in.
	Rates Rates

	limiter *limiter
	proxy   http.RoundTripper
}

// Register adds the endpoint below the group. Admit bounds what requests take together.
func (s *Server) Register(g *echo.Group, admit echo.MiddlewareFunc) {
	s.limiter, s.proxy = newLimiter(s.Rates), newTransport(s.Allowed)
	g.Any("/:token", s.receive, guard, s.limit, boundBody, admit)
	g.Any("/:project/:token", s.receive, guard, s.limit, boundBody, admit)
}

// guard tells browsers that what comes from here is of another origin than everything else on this server.
func guard(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		protect(c.Response().Header())
		return next(c)
	}
}

func protect(h http.Header) {
	h.Add("Content-Security-Policy", "sandbox allow-forms allow-scripts allow-popups")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer") // the token is in the URL
}

// limit refuses requests beyond the rates. It asks nothing of the database.
func (s *Server) limit(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		project, token, err := addressOf(c)
		if err != nil {
			return ErrNotFound
		}
		if err := s.limiter.admit(string(project)+"/"+token, s.Log.Now()); err != nil {
			return err
		}
		return next(c)
	}
}

// boundBody bounds the size of bodies.
func boundBody(next echo.HandlerFunc) echo.HandlerFunc {
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

	project entities.Project
	token   string
	body    []byte
	at      time.Time
	hook    entities.Hook
	run     entities.Run
}

// receive answers a request. Up to where it is known whether there is such a webhook, all requests take the same way.
func (s *Server) receive(c echo.Context) error {
	body, err := readBody(c)
	if err != nil {
		return err
	}
	r := call{Context: c, body: body, at: s.Log.Now()}
	if r.project, r.token, err = addressOf(c); err != nil {
		return ErrNotFound
	}
	if r.hook, r.run, err = s.find(c.Request().Context(), r.project, r.token, r.at); err != nil {
		return err
	}
	if r.run.Driver == entities.DriverClient {
		return s.pass(r)
	}
	return s.record(r)
}

// readBody reads the body within its time.
func readBody(c echo.Context) ([]byte, error) {
	conn := http.NewResponseController(c.Response().Writer)
	// A deadline long past breaks off the read under way.
	late := time.AfterFunc(bodyTime, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer late.Stop()
	body, err := io.ReadAll(c.Request().Body)
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	return body, nil
}

// addressOf is the project and the token that the path names. A path without a project is one of the default project:
// tokens of two projects may be the same, and neither takes the other's requests.
func addressOf(c echo.Context) (entities.Project, string, error) {
	token, err := pathParam(c, "token")
	if err != nil {
		return "", "", err
	}
	project := string(entities.DefaultProject)
	if slices.Contains(c.ParamNames(), "project") {
		if project, err = pathParam(c, "project"); err != nil {
			return "", "", err
		}
		if err := entities.ValidateID("project", project); err != nil {
			return "", "", err
		}
	}
	if token == "." || token == ".." {
		return "", "", ErrNotFound // which would be another path elsewhere
	}
	return entities.Project(project), token, entities.ValidateToken(token)
}

// pathParam is a parameter of the path, which echo hands out encoded when the path was encoded in any way but the
// usual.
func pathParam(c echo.Context, name string) (string, error) {
	if c.Request().URL.RawPath == "" {
		return c.Param(name), nil
	}
	return url.PathUnescape(c.Param(name))
}

// find finds the webhook and its run. It fails with [ErrNotFound].
func (s *Server) find(
	ctx context.Context, project entities.Project, token string, at time.Time,
) (entities.Hook, entities.Run, error) {
	hook, err := store.HookByToken(ctx, s.Reader, project, token, at)
	if err == nil && !hook.IsWebhook {
		err = ErrNotFound
	}
	if err != nil {
		return hook, entities.Run{}, missing(err)
	}
	run, err := store.RunByID(ctx, s.Reader, hook.Project, hook.RunID)
	if err == nil && run.Status.Ended() {
		err = ErrNotFound
	}
	return hook, run, missing(err)
}

// missing is [ErrNotFound] for all that says that there is no webhook, or none any more.
func missing(err error) error {
	for _, gone := range []error{entities.ErrHookNotFound, entities.ErrRunNotFound, entities.ErrRunEnded} {
		if errors.Is(err, gone) {
			return ErrNotFound
		}
	}
	return err
}

// spec reads what the hook says about requests.
func (s *Server) spec(ctx context.Context, hook entities.Hook) (entities.WebhookSpec, error) {
	at := read.Position{RunID: hook.RunID, Seq: hook.CreatedSeq}
	events, err := s.Log.EventsAt(ctx, []read.Position{at}, read.WithoutPayloads)
	if err != nil {
		return entities.WebhookSpec{}, err
	}
	e, ok := events[at]
	switch {
	case !ok:
		return entities.WebhookSpec{}, ErrNotFound // the run has just left
	case e.Data.Webhook == nil:
		return entities.WebhookSpec{}, nil
	default:
		return *e.Data.Webhook, nil
	}
}

// record verifies a request, gives it to the run, and answers it.
func (s *Server) record(r call) error {
	ctx := r.Request().Context()
	spec, err := s.spec(ctx, r.hook)
	if err != nil {
		return err
	}
	fields := jsonFields(r.body)
	id, digest, err := s.identify(ctx, r, spec, fields)
	if err != nil {
		return err
	}
	if challenge := fields("challenge"); spec.Verify == string(webhook.Slack) &&
		fields("type") == "url_verification" && challenge != "" {
		return r.String(http.StatusOK, challenge) // Slack asks who is here, and nothing has happened
	}
	payload, err := newPayload(r, id).encode()
	if err != nil {
		return err
	}
	_, err = s.Log.Append(ctx, r.hook.Project, eventlog.Request{
		RunID: r.hook.RunID, Type: entities.EventHookReceived, CorrelationID: string(r.hook.ID),
		SpecVersion: entities.SpecDriven, Payload: payload,
		Data: entities.EventData{ResumeID: id, ResumeDigest: digest},
	})
	if errors.Is(err, entities.ErrConflict) {
		return entities.ErrKeyReused // and no word about what the log has
	}
	if err != nil {
		return missing(err)
	}
	return s.answer(r, id, time.Duration(spec.RespondMS)*time.Millisecond)
}

// identify verifies a request and says what it is called, which is the same for all of its sender's tries; digest
// is what tries must have in common besides.
func (s *Server) identify(
	ctx context.Context, r call, spec entities.WebhookSpec, fields signature.Fields,
) (id, digest string, err error) {
	header := r.Request().Header
	if spec.Verify == "" {
		key := header.Get("Idempotency-Key")
		if key == "" {
			key = header.Get("Webhook-Id")
		}
		return requestID(r.hook, key), digestOf(r.body), nil
	}
	scheme, ok := signature.Of(webhook.Scheme(spec.Verify))
	if !ok {
		return "", "", &discreet{ErrUnverifiable, fmt.Errorf("run %s, hook %s: %q is no scheme",
			r.hook.RunID, r.hook.ID, spec.Verify)}
	}
	if err := s.verify(ctx, scheme, spec, r); err != nil {
		return "", "", err
	}
	if spec.Verify == string(webhook.Generic) {
		digest = digestOf(r.body) // the key is the sender's idea, not its system's
	}
	return requestID(r.hook, scheme.Delivery(header, fields)), digest, nil
}

// verify fails with [signature.ErrWrong], or with [ErrUnverifiable] when the secret is not there.
func (s *Server) verify(ctx context.Context, scheme signature.Scheme, spec entities.WebhookSpec, r call) error {
	values, err := s.Secrets.Values(ctx, r.hook.Project, spec.Secret)
	if err == nil {
		secrets := make([]string, len(values))
		for i, v := range values {
			secrets[i] = string(v)
		}
		err = scheme.Verify(secrets, r.Request().Header, r.body, r.at)
	}
	if errors.Is(err, admin.ErrSecretNotFound) || errors.Is(err, signature.ErrUnusable) {
		return &discreet{ErrUnverifiable, fmt.Errorf("run %s, hook %s, secret %s: %w",
			r.hook.RunID, r.hook.ID, spec.Secret, err)}
	}
	return err
}
