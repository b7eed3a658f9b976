// Package ui serves the dashboard under /ui: its files, the sessions of browsers, and the rewriting by which its pages
// use the native API with a cookie.
package ui

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// Path is the path of the dashboard, below that of the server's public URL. What is no page and no project's is at
// Path/-/.
const Path = "/ui"

// Options configures the dashboard.
type Options struct {
	// Files are those of the dashboard: index.html, and what it refers to below assets.
	Files fs.FS
	// PublicURL is the address at which browsers reach the server; empty if its path is / and its origin is not known.
	PublicURL string
	Sessions  *access.Sessions
	// Provider is the identity provider by which people sign in, nil for none, and People are their keys.
	Provider Provider
	People   *access.Keys
	// Refused is called with the address of a browser whose sign-in by the provider did not succeed, and why.
	Refused func(ctx context.Context, address string, err error)
	// Open tells that the server needs no key.
	Open bool
	// Version is the server's version, for the page.
	Version string
	Now     func() time.Time
}

// Server serves the dashboard.
type Server struct {
	options Options
	auth    *auth.Authenticator
	base    string // the path of the public URL, without a slash at its end
	origin  string // of the public URL
	secure  bool   // the public URL is https
	static  *static
	failed  failures
	// bodyTimeout is how long the body of a sign-in may take to arrive.
	bodyTimeout time.Duration
}

// New returns the dashboard. It fails if the public URL is invalid.
func New(o Options) (*Server, error) {
	u, err := url.Parse(o.PublicURL)
	if err != nil {
		return nil, fmt.Errorf("public URL: %w", err)
	}
	s := &Server{
		options: o, base: strings.TrimSuffix(u.EscapedPath(), "/"), failed: newFailures(o.Now), bodyTimeout: signInTime,
	}
	if u.Host != "" {
		s.origin, s.secure = u.Scheme+"://"+u.Host, u.Scheme == "https"
	}
	if s.static, err = newStatic(o.Files, s.base); err != nil {
		return nil, err
	}
	return s, nil
}

// Register adds the dashboard to a server. The authenticator is that of the native API.
func (s *Server) Register(e *echo.Echo, a *auth.Authenticator) {
	s.auth = a
	e.GET("/", s.redirect)
	g := e.Group(Path, pageHeaders)
	g.GET("", s.redirect)
	g.GET("/*", s.page)
	g.GET("/-/assets/:name", s.asset)
	g.GET("/-/reads/:project", s.reads(e))
	g.GET("/-/session", s.showSession)
	g.POST("/-/session", s.signIn, s.sameOrigin)
	g.DELETE("/-/session", s.signOut, s.sameOrigin)
	if s.options.Provider != nil {
		g.GET(providerPath, s.beginProvider)
		g.GET(returnPath, s.endProvider)
	}
}

func (s *Server) redirect(c echo.Context) error { return c.Redirect(http.StatusFound, s.base+Path+"/") }

// policy is the Content-Security-Policy of the pages. The page's scripts and styles are files of this server, and no
// text ever becomes HTML or a script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';" +
	" worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none';" +
	" require-trusted-types-for 'script'; trusted-types 'none'"

// pageHeaders sets the headers of all that is below [Path], except of the API.
func pageHeaders(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h := c.Response().Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
		h.Set(echo.HeaderCacheControl, "no-store") // files that may be kept say so
		commonHeaders(h)
		return next(c)
	}
}

func commonHeaders(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}
