package handlers

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/access"
	"github.com/stepwell-dev/stepwell/queue"
)

// drainPath is where a server in function mode is asked to deliver.
const drainPath = "/internal/drain"

// LongestDrain bounds how long a drain may go on.
const LongestDrain = time.Hour

// Function is what a server in function mode has besides: one in which nothing runs but requests.
type Function struct {
	Drainer *queue.Drainer
	// Budget is how long a drain goes on if its request does not say.
	Budget time.Duration
	// Kick has another request of this server drain; nil if only its scheduler does.
	Kick *Kicker

	keys *access.Keys
}

// drain delivers while the request lasts. The head of the answer is sent before the work, so that whoever only wants
// to have it begun need not wait; what was done is in the body.
func (f *Function) drain(c echo.Context) error {
	budget, linger, err := f.limits(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	drain, err := f.Drainer.Begin(ctx)
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	c.Response().WriteHeader(http.StatusOK)
	c.Response().Flush()
	done, err := drain.Run(ctx, budget, linger)
	if err != nil {
		return err // which is logged; the body stays empty
	}
	_ = f.keys.WriteUsed(ctx) // which nobody else does here; it only informs
	if done.Due > 0 {
		f.Kick.Kick(ctx)
	}
	return c.Echo().JSONSerializer.Serialize(c, drained{done.Delivered, done.Failed, done.Due, done.NextDueAt}, "")
}

// drained is the body of the answer.
type drained struct {
	Delivered int64      `json:"delivered"`
	Failed    int64      `json:"failed"`
	Due       int        `json:"due"`
	NextDueAt *time.Time `json:"nextDueAt"`
}

// limits reads how long to go on, and how long to stay although nothing is due.
func (f *Function) limits(c echo.Context) (budget, linger time.Duration, err error) {
	budget = f.Budget
	for name := range c.QueryParams() {
		into := map[string]*time.Duration{"budget": &budget, "linger": &linger}[name]
		if into == nil {
			return 0, 0, entities.Invalid("there is no parameter %q: want budget or linger", name)
		}
		if *into, err = time.ParseDuration(c.QueryParam(name)); err != nil || *into < 0 || *into > LongestDrain {
			return 0, 0, entities.Invalid("%s %q: want a time such as 25s, at most %s", name, c.QueryParam(name), LongestDrain)
		}
	}
	return budget, linger, nil
}

// kicking sees to it that what a request made due is delivered: before the request ends, another one is sent to do
// that.
func (f *Function) kicking(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		err := next(c)
		if f.Drainer.Wanted() {
			f.Kick.Kick(c.Request().Context())
		}
		return err
	}
}

// register adds what the server in function mode answers besides, to those who pass the guard.
func (f *Function) register(e *echo.Echo, guard echo.MiddlewareFunc, keys *access.Keys) {
	f.keys = keys
	e.POST(drainPath, f.drain, guard)
	e.Use(f.kicking)
}
