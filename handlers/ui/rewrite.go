package ui

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// Rewrite runs before the router. It turns requests to /ui/PROJECT/v1/… into requests to /v1/… that authenticate with
// the session of the browser instead of a key. So the dashboard's API is the native API: the same routes, permissions
// and limits. Requests to other paths never see the cookie.
//
// It also removes the path of the public URL, for proxies that keep it.
func (s *Server) Rewrite(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		path := r.URL.EscapedPath()
		if below, ok := strings.CutPrefix(path, s.base); ok && s.base != "" &&
			(below == "/" || below == Path || strings.HasPrefix(below, Path+"/")) {
			path = below
			setPath(r, path)
		}
		if project, rest, ok := cutAPIPath(path); ok {
			setPath(r, rest)
			b := auth.Browser{
				Cookie: s.cookieOf(r), Project: project, Origin: s.origin,
				Cell: s.options.Sessions.Cell(), Elsewhere: s.elsewhere(r),
			}
			c.SetRequest(r.WithContext(auth.WithBrowser(r.Context(), b)))
			apiHeaders(c.Response().Header())
		}
		return next(c)
	}
}

// cutAPIPath returns the project and the path of the native API in an escaped path below [Path].
func cutAPIPath(path string) (project entities.Project, rest string, ok bool) {
	below, ok := strings.CutPrefix(path, Path+"/")
	if !ok {
		return "", "", false
	}
	segment, rest, _ := strings.Cut(below, "/")
	name, err := url.PathUnescape(segment)
	if err != nil || !strings.HasPrefix(rest, "v1/") {
		return "", "", false
	}
	return entities.Project(name), "/" + rest, true
}

// setPath changes the path of a request in place: the router looks at the request that the server received.
func setPath(r *http.Request, escaped string) {
	unescaped, err := url.PathUnescape(escaped)
	if err != nil {
		return // net/http has parsed it, so it is valid
	}
	r.URL.Path, r.URL.RawPath = unescaped, ""
	if unescaped != escaped {
		r.URL.RawPath = escaped
	}
}

// apiHeaders sets the headers of answers of the API to the dashboard. A browser that opens one as a page, such as a
// payload with HTML, runs nothing in it.
func apiHeaders(h http.Header) {
	commonHeaders(h)
	h.Set(echo.HeaderCacheControl, "no-store")
	h.Set(echo.HeaderContentDisposition, "attachment")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
}
