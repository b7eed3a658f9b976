// Package auth authenticates requests and checks that the key's role permits them.
package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/token"
)

// ErrUnauthorized is returned for requests without a valid key.
var ErrUnauthorized = errors.New("missing or wrong API key: send Authorization: Bearer with a key of the server," +
	" such as its STEPWELL_API_KEY")

// keyPrefix starts every key that the server creates.
const keyPrefix = "sw_"

// Keys stores the keys that the server created.
type Keys interface {
	// Lookup returns a key, even if it is revoked or expired. It fails with [admin.ErrKeyNotFound].
	Lookup(ctx context.Context, text string) (admin.Key, error)
	// Used records that a request used the key. It must return quickly.
	Used(admin.KeyID)
	// Valid returns those of the clients whose keys and sessions are still valid.
	Valid(context.Context, []admin.Client) (map[admin.Client]bool, error)
}

// Options configures an [Authenticator].
type Options struct {
	// Keys are the keys that the server created; nil for none.
	Keys Keys
	// Sessions are those of browsers; nil for none, as without Keys. Only requests of [WithBrowser] use them.
	Sessions Sessions
	// Calls verifies the tokens of calls; nil if there are none.
	Calls Calls
	// EnvironmentKey is an additional admin key of the default project; empty for none.
	EnvironmentKey string
	// Open treats requests without a key as those of an admin of the default project, unless a page of another site
	// makes them.
	Open bool
	// Local means that the open server listens on a loopback address only. It then accepts only hosts that are IP
	// addresses or local names: with DNS rebinding, a page of any other name could make a browser send any request.
	Local bool
	Now   func() time.Time
	// Rejected is called for each request without a valid key, with the client's address; nil for nobody. The error does
	// not contain what the client sent.
	Rejected func(ctx context.Context, address string, err error)
	// Recheck is how often the clients of requests in progress are checked again; 0 means [DefaultRecheck].
	Recheck time.Duration
}

// Authenticator authenticates requests and checks their permissions.
type Authenticator struct {
	options     Options
	environment [sha256.Size]byte
	revocations revocations
	// permissions are what the routes require, by method and path.
	permissions map[string]Permission
	// forCalls are the routes that accept the tokens of calls, by method and path.
	forCalls map[string]bool
	// callback is the route for the tokens of callbacks.
	callback string
	// unrouted are the catch-all paths of the router, which match requests for no route.
	unrouted map[string]bool
}

// New returns an authenticator without routes.
func New(o Options) *Authenticator {
	o.Recheck = cmp.Or(o.Recheck, DefaultRecheck)
	return &Authenticator{
		options: o, environment: sha256.Sum256([]byte(o.EnvironmentKey)),
		revocations: revocations{
			keys: o.Keys, every: o.Recheck, requests: map[*context.CancelCauseFunc]admin.Client{},
		},
		permissions: map[string]Permission{}, forCalls: map[string]bool{}, unrouted: map[string]bool{},
	}
}

// Identity is the client that made a request.
type Identity struct {
	Project entities.Project
	Role    admin.Role
	// KeyID is empty for the environment key and for requests without a key.
	KeyID admin.KeyID
	// Actor is the client's name in the audit log.
	Actor admin.Actor
	// Call is set if the client is a function that sent the token of its call. It has no role.
	Call *token.Call

	key admin.Key // zero for the environment key and for requests without a key
}

// Operator reports whether the client administers the whole installation, and not only its project.
func (i Identity) Operator() bool {
	return i.Role == admin.RoleAdmin && i.Project == entities.DefaultProject
}

// SeesPayloads reports whether the client may see payloads and hook tokens.
func (i Identity) SeesPayloads() bool { return i.Call != nil || Read.allows(i.Role) }

// Key returns the client's key; zero for the environment key and for requests without a key.
func (i Identity) Key() admin.Key { return i.key }

func operator(a admin.Actor) Identity {
	return Identity{Project: entities.DefaultProject, Role: admin.RoleAdmin, Actor: a}
}

type serverKey struct{}

// WithServer marks a request that the server makes itself, on behalf of a project that asked for it in SQL. It may do
// what a key of the role invoke may.
func WithServer(ctx context.Context, p entities.Project) context.Context {
	return context.WithValue(ctx, serverKey{}, p)
}

// identify returns the client that made the request. It fails with [ErrUnauthorized].
func (a *Authenticator) identify(c echo.Context) (Identity, error) {
	if project, ok := c.Request().Context().Value(serverKey{}).(entities.Project); ok {
		return Identity{Project: project, Role: admin.RoleInvoke, Actor: admin.ActorServer}, nil
	}
	if b, ok := browserOf(c.Request().Context()); ok {
		return a.identifyBrowser(c.Request(), b)
	}
	text := bearer(c.Request())
	if a.isEnvironmentKey(text) {
		return operator(admin.ActorEnvironment), nil
	}
	if a.options.Calls != nil && strings.HasPrefix(text, token.CallPrefix) {
		return a.identifyCall(c.Request().Context(), text)
	}
	if a.options.Keys != nil && strings.HasPrefix(text, keyPrefix) {
		return a.identifyKey(c.Request().Context(), text)
	}
	if a.options.Open { // clients send an arbitrary token to a server without keys
		return operator(admin.ActorOpen), a.checkOrigin(c.Request())
	}
	return Identity{}, ErrUnauthorized
}

func (a *Authenticator) isEnvironmentKey(text string) bool {
	given := sha256.Sum256([]byte(text))
	return a.options.EnvironmentKey != "" && subtle.ConstantTimeCompare(given[:], a.environment[:]) == 1
}

// bearer returns the request's bearer token; empty for none.
func bearer(r *http.Request) string {
	if text, ok := strings.CutPrefix(r.Header.Get(echo.HeaderAuthorization), "Bearer "); ok {
		return text
	}
	return ""
}

// identifyKey returns the client that has the key. Revoked and expired keys fail on an open server too.
func (a *Authenticator) identifyKey(ctx context.Context, text string) (Identity, error) {
	key, err := a.options.Keys.Lookup(ctx, text)
	switch {
	case errors.Is(err, admin.ErrKeyNotFound):
		return Identity{}, ErrUnauthorized
	case err != nil:
		return Identity{}, err
	default:
		return a.accept(key)
	}
}

// accept returns the client that has the key, unless it is revoked or expired. It fails with an
// *[entities.WrongCellError] if another cell has the project.
func (a *Authenticator) accept(key admin.Key) (Identity, error) {
	switch {
	case key.MovedTo != "":
		return Identity{}, key.Refusal("project " + string(key.Project))
	case key.Revoked():
		return Identity{}, fmt.Errorf("API key %s has been revoked: %w", key.ID, ErrUnauthorized)
	case key.Expired(a.options.Now()):
		return Identity{}, fmt.Errorf("API key %s has expired: %w", key.ID, ErrUnauthorized)
	}
	return Identity{Project: key.Project, Role: key.Role, KeyID: key.ID, Actor: admin.Actor(key.ID), key: key}, nil
}

const identityKey = "stepwell.identity"

// authenticate identifies the client and, if authorize accepts it, calls the next handler.
func (a *Authenticator) authenticate(
	c echo.Context, next echo.HandlerFunc, authorize func(Identity) error,
) error {
	identity, err := a.identify(c)
	request := c.Request()
	if errors.Is(err, ErrUnauthorized) && a.options.Rejected != nil {
		a.options.Rejected(request.Context(), c.RealIP(), err)
	}
	if err != nil {
		return err
	}
	ctx := admin.WithSource(request.Context(), admin.Source{Actor: identity.Actor, Address: c.RealIP()})
	if identity.KeyID != "" {
		defer a.options.Keys.Used(identity.KeyID)
	}
	if client, ok := clientOf(request, identity); ok {
		var stop func()
		ctx, stop = a.revocations.watch(ctx, client)
		defer stop()
	}
	if err := authorize(identity); err != nil {
		return a.orMoved(ctx, identity, err)
	}
	c.Set(identityKey, identity)
	c.SetRequest(request.WithContext(ctx))
	defer c.SetRequest(request) // outer middleware must see the connection's context
	err = next(c)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrUnauthorized) {
		return cause
	}
	return a.orMoved(ctx, identity, err)
}

// orMoved returns the error of a function's request, or that its project has moved to another cell. The token of a call
// outlives the project here, whose runs are then not found. Keys say it themselves.
func (a *Authenticator) orMoved(ctx context.Context, identity Identity, err error) error {
	if err == nil || identity.Call == nil {
		return err
	}
	if moved := a.options.Calls.CheckHere(ctx, identity.Project); errors.Is(moved, entities.ErrWrongCell) {
		return moved
	}
	return err
}

// Require returns middleware for operator-wide routes: it allows keys of the default project that have the permission.
func (a *Authenticator) Require(p Permission) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			return a.authenticate(c, next, func(identity Identity) error {
				if identity.Project != entities.DefaultProject {
					return errOtherProject
				}
				return identity.Check(p)
			})
		}
	}
}

// IdentityOf returns the client that made an authenticated request. It panics for other requests.
func IdentityOf(c echo.Context) Identity { return c.Get(identityKey).(Identity) }

// Project returns the project of the client that made an authenticated request. It panics for other requests.
func Project(c echo.Context) entities.Project { return IdentityOf(c).Project }
