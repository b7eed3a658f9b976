package auth

import (
	"fmt"
	"maps"
	"net/http"

	"github.com/labstack/echo/v4"
)

// Routes is a group of routes. A route cannot be added without its permission.
type Routes struct {
	auth   *Authenticator
	group  *echo.Group
	prefix string
}

// Group adds a group of routes. Requests pass authentication first, then the given middleware.
func (a *Authenticator) Group(e *echo.Echo, prefix string, then ...echo.MiddlewareFunc) Routes {
	return a.routes(e.Group(prefix, append([]echo.MiddlewareFunc{a.authorize}, then...)...), prefix)
}

func (a *Authenticator) routes(group *echo.Group, prefix string) Routes {
	a.unrouted[prefix], a.unrouted[prefix+"/*"] = true, true // echo adds these to groups with middleware
	return Routes{a, group, prefix}
}

// authorize allows requests that have the permission of their route. Requests for no route pass with any key and get
// a 404.
func (a *Authenticator) authorize(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		return a.authenticate(c, next, func(identity Identity) error {
			if identity.Call != nil {
				return a.authorizeCall(c, *identity.Call)
			}
			route := c.Request().Method + " " + c.Path()
			permission, ok := a.permissions[route]
			switch {
			case ok:
				return permission.check(identity)
			case a.unrouted[c.Path()]:
				return nil
			default:
				return fmt.Errorf("%w: route %s has no permission configured", ErrForbidden, route)
			}
		})
	}
}

// Permissions returns the permission of each route, by method and path.
func (a *Authenticator) Permissions() map[string]Permission { return maps.Clone(a.permissions) }

// Group adds a subgroup.
func (r Routes) Group(prefix string) Routes {
	return r.auth.routes(r.group.Group(prefix), r.prefix+prefix)
}

// Use adds middleware that runs before the handlers of the group.
func (r Routes) Use(then ...echo.MiddlewareFunc) { r.group.Use(then...) }

// NotFound sets the handler of requests for no route.
func (r Routes) NotFound(h echo.HandlerFunc) { r.group.RouteNotFound("/*", h) }

// GET adds a route.
func (r Routes) GET(path string, p Permission, h echo.HandlerFunc) { r.add(http.MethodGet, path, p, h) }

// POST adds a route.
func (r Routes) POST(path string, p Permission, h echo.HandlerFunc) {
	r.add(http.MethodPost, path, p, h)
}

// PUT adds a route.
func (r Routes) PUT(path string, p Permission, h echo.HandlerFunc) { r.add(http.MethodPut, path, p, h) }

// PATCH adds a route.
func (r Routes) PATCH(path string, p Permission, h echo.HandlerFunc) {
	r.add(http.MethodPatch, path, p, h)
}

// DELETE adds a route.
func (r Routes) DELETE(path string, p Permission, h echo.HandlerFunc) {
	r.add(http.MethodDelete, path, p, h)
}

func (r Routes) add(method, path string, p Permission, h echo.HandlerFunc) {
	r.auth.permissions[method+" "+r.prefix+path] = p
	r.group.Add(method, path, h)
}
