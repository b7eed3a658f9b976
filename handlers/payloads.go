package handlers

import (
	"cmp"
	"context"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

const (
	// payloadFactor is the factor of [share.Pool] by which projects share the memory for payloads: a project that is alone
	// gets three quarters.
	payloadFactor = 3
	// payloadWeight is how many bytes of memory a byte of a payload counts for: answering makes copies of it.
	payloadWeight = 3
)

// payloads limits the memory of the payloads in answers, and divides it between projects. A request takes memory before
// it loads payloads, and holds it until its answer has been written.
type payloads struct {
	memory *share.Pool
	// project returns the project of a request.
	project func(echo.Context) string
}

func newPayloads(memory int64, project func(echo.Context) string) *payloads {
	return &payloads{share.NewPool(cmp.Or(memory, defaultRequestMemory)), project}
}

// middleware counts the payloads that requests read. Reading fails with [overloaded] when a request has waited
// for memory as long as the overload policy of its route allows.
func (p *payloads) middleware(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r, project, held := c.Request(), p.project(c), int64(0)
		policy := policyOf(r.Method, c.Path())
		defer func() {
			if held > 0 {
				p.memory.Release(project, held)
			}
		}()
		ctx := read.WithMemory(r.Context(), func(ctx context.Context, bytes int64) error {
			// A request takes at most what one project can have, so that it succeeds when it is alone.
			n := min(bytes*payloadWeight, p.memory.Most(payloadFactor)-held)
			if n <= 0 {
				return nil
			}
			waiting, cancel := context.WithTimeout(ctx, policy.deadline)
			defer cancel()
			if err := p.memory.Take(waiting, project, n, payloadFactor); err != nil {
				return cmp.Or(ctx.Err(), overloaded(policy.status))
			}
			held += n
			return nil
		})
		c.SetRequest(r.WithContext(ctx))
		return next(c)
	}
}
