package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/time/rate"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

const (
	sessionCookie = "stepwell_session"
	// mostCells is in how many other cells a browser may have sessions.
	mostCells = 32
	// cookieAge is when browsers forget a session: not before the server does.
	cookieAge = 30 * 24 * time.Hour
	// maxSignIn limits the body of a sign-in, and signInTime the time that it takes to arrive.
	maxSignIn  = 4 << 10
	signInTime = 10 * time.Second
)

// cookieName is the name of the cookie of this cell's session: a browser may have one in each.
func (s *Server) cookieName() string {
	if cell := s.options.Sessions.Cell(); cell != "" {
		return sessionCookie + "_" + string(cell)
	}
	return sessionCookie
}

// cookieOf returns the cookie of a session; empty for none.
func (s *Server) cookieOf(r *http.Request) string {
	c, err := r.Cookie(s.cookieName())
	if err != nil {
		return ""
	}
	return c.Value
}

// elsewhere returns the other cells of which a browser has cookies, which prove nothing; at most [mostCells].
func (s *Server) elsewhere(r *http.Request) []entities.Cell {
	var cells []entities.Cell
	for _, c := range r.Cookies() {
		name, ok := strings.CutPrefix(c.Name, sessionCookie+"_")
		cell := entities.Cell(name)
		if !ok || cell == s.options.Sessions.Cell() || entities.ValidateCell(cell) != nil || len(cells) == mostCells {
			continue
		}
		cells = append(cells, cell)
	}
	return cells
}

func (s *Server) setCookie(c echo.Context, value string, age time.Duration) {
	c.SetCookie(&http.Cookie{ //nolint:gosec // over plain HTTP, browsers drop cookies that are Secure
		Name: s.cookieName(), Value: value, Path: s.base + Path, MaxAge: int(age.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: s.secure || c.Request().TLS != nil,
	})
}

// sameOrigin refuses requests that no page of this server makes.
func (s *Server) sameOrigin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := auth.CheckSameOrigin(c.Request(), s.origin); err != nil {
			return err
		}
		return next(c)
	}
}

// session is what the page knows about its session.
type session struct {
	// Open tells that the server needs no key for the project default.
	Open    bool   `json:"open"`
	Version string `json:"version"`
	// Provider is the host of the identity provider by which people sign in; missing if there is none.
	Provider string `json:"provider,omitempty"`
	// Opened is the project that the request has opened; empty if it opened none.
	Opened entities.Project `json:"opened,omitempty"`
	// Cells are the other cells in which the browser has sessions, for the page to ask them.
	Cells []entities.Cell `json:"cells,omitempty"`
	// Projects are those that the session may use.
	Projects []openedProject `json:"projects"`
}

type openedProject struct {
	Project entities.Project `json:"project"`
	Role    admin.Role       `json:"role"`
	// Key is the name of the key that opened it; missing for a key of the environment, and on open servers.
	Key       string     `json:"key,omitempty"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
}

// showSession answers with the session of the cookie. It is no error if there is none.
func (s *Server) showSession(c echo.Context) error {
	return s.answerSession(c, s.cookieOf(c.Request()), "")
}

func (s *Server) answerSession(c echo.Context, cookie string, fresh entities.Project) error {
	answer := session{
		Open: s.options.Open, Version: s.options.Version, Opened: fresh, Cells: s.elsewhere(c.Request()),
		Projects: []openedProject{},
	}
	if s.options.Provider != nil {
		answer.Provider = s.options.Provider.Host()
	}
	var opened []access.Opened
	if cookie != "" {
		var err error
		if opened, err = s.options.Sessions.Opened(c.Request().Context(), cookie); err != nil {
			return err
		}
	}
	found := false
	for _, o := range opened {
		role, err := s.auth.Accepts(o)
		if err != nil {
			continue // revoked or expired
		}
		p := openedProject{Project: o.Project, Role: role}
		if o.Key != nil {
			p.Key, p.ExpiresAt = o.Key.Name, o.Key.ExpiresAt
		}
		answer.Projects = append(answer.Projects, p)
		found = found || o.Project == entities.DefaultProject
	}
	if s.options.Open && !found {
		open := openedProject{Project: entities.DefaultProject, Role: admin.RoleAdmin}
		answer.Projects = append([]openedProject{open}, answer.Projects...)
	}
	return c.JSON(http.StatusOK, answer)
}

// signIn opens a project in the browser's session: that of a key, or of a code that a key has made.
func (s *Server) signIn(c echo.Context) error {
	r := c.Request()
	body, err := s.body(c)
	if err != nil {
		return err
	}
	var opened access.Opened
	err = s.failed.limit(r.Context(), c.RealIP(), body.Key+body.Code, func() (err error) {
		opened, err = s.opens(r.Context(), body)
		return err
	})
	if err != nil {
		return err
	}
	cookie, err := s.options.Sessions.Enter(r.Context(), s.cookieOf(r), opened)
	if err != nil {
		return err
	}
	s.setCookie(c, cookie, cookieAge)
	return s.answerSession(c, cookie, opened.Project)
}

// opens returns what a key or code opens. It fails with [auth.ErrUnauthorized], and with [auth.ErrForbidden].
func (s *Server) opens(ctx context.Context, body credentials) (access.Opened, error) {
	if body.Key != "" {
		return s.auth.Opens(ctx, body.Key)
	}
	opened, err := s.options.Sessions.Redeem(ctx, body.Code)
	if errors.Is(err, admin.ErrSessionNotFound) {
		return access.Opened{}, errCode
	}
	if err == nil {
		_, err = s.auth.Accepts(opened)
	}
	return opened, err
}

// credentials are the body of a sign-in: one of the two.
type credentials struct{ Key, Code string }

// body reads the body of a sign-in. Anybody can send one, so a client that does not send all of it soon holds no
// connection.
func (s *Server) body(c echo.Context) (body credentials, err error) {
	timer := time.AfterFunc(s.bodyTimeout, incoming.AbortRead(c))
	data, err := io.ReadAll(io.LimitReader(c.Request().Body, maxSignIn))
	if !timer.Stop() {
		return body, entities.Invalid("the body takes longer than %s to arrive", s.bodyTimeout)
	}
	if err != nil {
		return body, fmt.Errorf("read body: %w", err)
	}
	if json.Unmarshal(data, &body) != nil || (body.Key == "") == (body.Code == "") {
		return body, entities.Invalid(`want {"key": "…"} or {"code": "…"}`)
	}
	return body, nil
}

// errCode is an [auth.ErrUnauthorized].
var errCode = fmt.Errorf("the code is wrong, was used, or is older than %s: make another one with stepwell ui: %w",
	access.CodeTime, auth.ErrUnauthorized)

// signOut ends the browser's session, with all its projects.
func (s *Server) signOut(c echo.Context) error {
	if cookie := s.cookieOf(c.Request()); cookie != "" {
		if err := s.options.Sessions.End(c.Request().Context(), cookie); err != nil {
			return err
		}
	}
	s.setCookie(c, "", -time.Second)
	return c.NoContent(http.StatusNoContent)
}

const (
	// failuresPerMinute is how many failed sign-ins an address has with a prefix.
	failuresPerMinute = 20
	// failureInterval is how often it gets one back.
	failureInterval = time.Minute / failuresPerMinute
	// comparedPrefix is how much of a key or code is its prefix. Keys are listed by it.
	comparedPrefix = 9
	// signInsAtOnce is how many sign-ins are looked up at the same time, divided between addresses.
	signInsAtOnce = 8
)

// origin is where failed sign-ins come from: an address, and the prefix of what was tried.
type origin struct {
	network netip.Prefix
	prefix  string
}

// failures limits the failed sign-ins of each origin. A key or code that is right is never refused, however many wrong
// ones come from behind the same address: so all are looked up, a few of each address at a time.
type failures struct {
	now     func() time.Time
	origins incoming.Buckets[origin]
	lookups *share.Pool
}

func newFailures(now func() time.Time) failures {
	return failures{
		now, incoming.NewBuckets[origin](rate.Every(failureInterval), failuresPerMinute), share.NewPool(signInsAtOnce),
	}
}

// limit returns the error of a sign-in of the address with the credential: that of the look-up, or an
// *[incoming.TooManyError] if it is wrong as too many before it were.
func (f failures) limit(ctx context.Context, address, credential string, lookUp func() error) error {
	network := incoming.Network(address)
	if err := f.lookups.Take(ctx, network.String(), 1, 1); err != nil {
		return err
	}
	defer f.lookups.Release(network.String(), 1)
	err := lookUp()
	if !errors.Is(err, auth.ErrUnauthorized) {
		return err
	}
	prefix := strings.Clone(credential[:min(len(credential), comparedPrefix)]) // the bucket does not keep the rest
	if !f.origins.Of(origin{network, prefix}).AllowN(f.now(), 1) {
		const what = "failed sign-ins with this prefix from your address"
		return &incoming.TooManyError{What: what, RetryAfter: failureInterval}
	}
	return err
}
