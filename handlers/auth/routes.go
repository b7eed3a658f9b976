package auth

import (
	"fmt"
	"maps"
	"strings"

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
	a.unrouted[prefix], a.unrouted[prefix+"/*"] = true, true // echo adds these to groups with middleware
	return Routes{a, e.Group(prefix, append([]echo.MiddlewareFunc{a.authorize}, then...)...), prefix}
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
				return identity.Check(permission)
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

// Use adds middleware that runs before the handlers of the group.
func (r Routes) Use(then ...echo.MiddlewareFunc) { r.group.Use(then...) }

// NotFound sets the handler of requests for no route.
func (r Routes) NotFound(h echo.HandlerFunc) { r.group.RouteNotFound("/*", h) }

// Handle adds a route. The pattern is its method and path, such as "GET /runs/:id".
func (r Routes) Handle(pattern string, p Permission, h echo.HandlerFunc) {
	method, path, _ := strings.Cut(pattern, " ")
	r.auth.permissions[method+" "+r.prefix+path] = p
	r.group.Add(method, path, h)
}
