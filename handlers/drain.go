package handlers

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/queue"
)

// drainPath is where a server in function mode is asked to deliver due messages.
const drainPath = "/internal/drain"

// LongestDrain limits the duration of a drain.
const LongestDrain = time.Hour

// Function is the additional part of a server in function mode, in which nothing runs between requests.
type Function struct {
	Drainer *queue.Drainer
	// Budget is the default duration of a drain.
	Budget time.Duration
	// Kick starts a drain in another request to this server; nil if only the scheduler starts drains.
	Kick *Kicker

	keys *access.Keys
}

// drain delivers due messages until the budget is used. It sends the response's header first, so that clients that only
// start a drain need not wait for the result in the body.
func (f *Function) drain(c echo.Context) error {
	budget, linger, err := f.limits(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	drain, err := f.Drainer.StartDrain(ctx)
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	c.Response().WriteHeader(http.StatusOK)
	c.Response().Flush()
	done, err := drain.Run(ctx, budget, linger)
	if err != nil {
		return err // it is logged; the body stays empty
	}
	_ = f.keys.WriteUsed(ctx) // function mode has no background task for it; an error loses nothing but these times
	if done.Due > 0 {
		f.Kick.Kick(ctx)
	}
	return c.Echo().JSONSerializer.Serialize(c, drainResult{done.Delivered, done.Failed, done.Due, done.NextDueAt}, "")
}

// drainResult is the body of the answer.
type drainResult struct {
	Delivered int64      `json:"delivered"`
	Failed    int64      `json:"failed"`
	Due       int        `json:"due"`
	NextDueAt *time.Time `json:"nextDueAt"`
}

// limits returns the query's budget, and its linger time: how long the drain continues while nothing is due.
func (f *Function) limits(c echo.Context) (budget, linger time.Duration, err error) {
	budget = f.Budget
	for name := range c.QueryParams() {
		into := map[string]*time.Duration{"budget": &budget, "linger": &linger}[name]
		if into == nil {
			return 0, 0, entities.Invalid("unknown parameter %q: want budget or linger", name)
		}
		if *into, err = time.ParseDuration(c.QueryParam(name)); err != nil || *into < 0 || *into > LongestDrain {
			return 0, 0, entities.Invalid("%s %q: want a duration such as 25s, at most %s",
				name, c.QueryParam(name), LongestDrain)
		}
	}
	return budget, linger, nil
}

// kickAfter starts a drain at the end of each request that made messages due, or before it waits.
func (f *Function) kickAfter(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		kick := func() {
			if f.Drainer.Wanted() {
				f.Kick.Kick(c.Request().Context())
			}
		}
		incoming.OnWait(c, kick)
		defer kick()
		return next(c)
	}
}

// register adds the drain endpoint, for the server's own requests and for those that the middleware authorizes.
func (f *Function) register(e *echo.Echo, authorize echo.MiddlewareFunc, keys *access.Keys) {
	f.keys = keys
	e.POST(drainPath, f.drain, f.Kick.allowOwn(authorize))
	e.Use(f.kickAfter)
}
