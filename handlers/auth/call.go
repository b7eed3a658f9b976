package auth

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

// Calls verifies the tokens of calls.
type Calls interface {
	// VerifyCall returns the call for which a token was made. It reports false if the token is invalid or has expired.
	VerifyCall(ctx context.Context, text string) (c token.Call, ok bool, err error)
	// CheckLease fails unless the lease of the call is live.
	CheckLease(context.Context, token.Call) error
	// CheckHere fails with an *[entities.WrongCellError] if the project has moved to another cell.
	CheckHere(context.Context, entities.Project) error
}

// actorFunction is the actor of requests with the token of a call.
const actorFunction admin.Actor = "function"

// runParam is the path parameter of routes for calls that has the ID of the run.
const runParam = "id"

// stepParam is the one of the route for callbacks that has the ID of the step.
const stepParam = "stepId"

// identifyCall returns the function that has the token of a call. Invalid tokens fail on an open server too.
func (a *Authenticator) identifyCall(ctx context.Context, text string) (Identity, error) {
	call, ok, err := a.options.Calls.VerifyCall(ctx, text)
	if err != nil {
		return Identity{}, err
	}
	if !ok {
		return Identity{}, fmt.Errorf("the token of the call is invalid or has expired: %w", ErrUnauthorized)
	}
	return Identity{Project: call.Project, Actor: actorFunction, Call: &call}, nil
}

// authorizeCall allows a function what the token of its call is for: the routes for calls, about its own run, while its
// invocation is active. The transaction of a request that writes checks the invocation itself.
func (a *Authenticator) authorizeCall(c echo.Context, call token.Call) error {
	r := c.Request()
	if step, ok := call.Step(); ok {
		return a.authorizeCallback(c, call.RunID, step)
	}
	if !a.forCalls[r.Method+" "+c.Path()] {
		return fmt.Errorf("%w: the token of a call is not for this request: use an API key", ErrForbidden)
	}
	if !hasParam(c, runParam, string(call.RunID)) {
		return fmt.Errorf("%w: the token is for the call's own run, %s", ErrForbidden, call.RunID)
	}
	if r.Method != http.MethodGet {
		return nil
	}
	return a.options.Calls.CheckLease(r.Context(), call)
}

// authorizeCallback allows a request with the token of a step's callback to send the step's result.
func (a *Authenticator) authorizeCallback(c echo.Context, id entities.RunID, step entities.StepID) error {
	isRoute := c.Request().Method+" "+c.Path() == a.callback
	if !isRoute || !hasParam(c, runParam, string(id)) || !hasParam(c, stepParam, string(step)) {
		return fmt.Errorf("%w: the token is for the result of step %s of run %s", ErrForbidden, step, id)
	}
	return nil
}

// hasParam reports whether a decoded path parameter has a value.
func hasParam(c echo.Context, name, value string) bool {
	got, err := incoming.PathParam(c, name)
	return err == nil && got == value
}

// ForCallback makes the route of a pattern the one for the tokens of callbacks. The path has the run's ID as its
// parameter "id", and the step's as "stepId".
func (r Routes) ForCallback(pattern string) {
	method, path, _ := strings.Cut(pattern, " ")
	r.auth.callback = method + " " + r.prefix + path
}

// ForCalls returns the routes that accept the tokens of calls, by method and path.
func (a *Authenticator) ForCalls() []string { return slices.Sorted(maps.Keys(a.forCalls)) }

// ForCall makes the route of a pattern accept the tokens of calls too. The path has the run's ID as its parameter "id".
// A route that writes must check in its transaction that the invocation is active.
func (r Routes) ForCall(pattern string) {
	method, path, _ := strings.Cut(pattern, " ")
	r.auth.forCalls[method+" "+r.prefix+path] = true
}
