package auth

import (
	"fmt"
	"maps"
	"net/http"

	"github.com/labstack/echo/v4"
)

// Routes is a group of routes that cannot be added to without saying what a new one needs.
type Routes struct {
	gate   *Gate
	group  *echo.Group
	prefix string
}

// Group begins a group of routes below a path. Requests come through the gate first, and then through the others.
func (g *Gate) Group(e *echo.Echo, prefix string, then ...echo.MiddlewareFunc) Routes {
	return g.routes(e.Group(prefix, append([]echo.MiddlewareFunc{g.admit}, then...)...), prefix)
}

// routes is a group, whose router says where there is nothing below it.
func (g *Gate) routes(group *echo.Group, prefix string) Routes {
	g.nowhere[prefix], g.nowhere[prefix+"/*"] = true, true
	return Routes{g, group, prefix}
}

// admit lets requests through that have what their route needs. Where there is none, any key may hear so.
func (g *Gate) admit(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		return g.enter(c, next, func(who Identity) error {
			route := c.Request().Method + " " + c.Path()
			needs, ok := g.needs[route]
			if !ok && !g.nowhere[c.Path()] {
				return fmt.Errorf("%w: nobody has said what %s needs", ErrForbidden, route)
			}
			if !ok {
				needs = Any
			}
			return needs.permit(who)
		})
	}
}

// Needs is what each route needs, by its method and path.
func (g *Gate) Needs() map[string]Needs { return maps.Clone(g.needs) }

// Group is a group below this one.
func (r Routes) Group(prefix string) Routes {
	return r.gate.routes(r.group.Group(prefix), r.prefix+prefix)
}

// Use has requests come through more before they are answered.
func (r Routes) Use(then ...echo.MiddlewareFunc) { r.group.Use(then...) }

// Nowhere answers requests that no route is for.
func (r Routes) Nowhere(h echo.HandlerFunc) { r.group.RouteNotFound("/*", h) }

// GET adds a route, and so do those below.
func (r Routes) GET(path string, n Needs, h echo.HandlerFunc) { r.add(http.MethodGet, path, n, h) }

// POST adds a route.
func (r Routes) POST(path string, n Needs, h echo.HandlerFunc) { r.add(http.MethodPost, path, n, h) }

// PUT adds a route.
func (r Routes) PUT(path string, n Needs, h echo.HandlerFunc) { r.add(http.MethodPut, path, n, h) }

// PATCH adds a route.
func (r Routes) PATCH(path string, n Needs, h echo.HandlerFunc) { r.add(http.MethodPatch, path, n, h) }

// DELETE adds a route.
func (r Routes) DELETE(path string, n Needs, h echo.HandlerFunc) {
	r.add(http.MethodDelete, path, n, h)
}

func (r Routes) add(method, path string, n Needs, h echo.HandlerFunc) {
	r.gate.needs[method+" "+r.prefix+path] = n
	r.group.Add(method, path, h)
}
