// Package auth says on whose behalf a request is made, and whether it may be. It imports package entities, and nothing
// else of the module.
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

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
)

// ErrUnauthorized says that a request does not carry a key that is good now.
var ErrUnauthorized = errors.New("missing or wrong API key: send Authorization: Bearer with a key of the server," +
	" such as its STEPWELL_API_KEY")

// keyPrefix is how the keys begin that the server makes.
const keyPrefix = "sw_"

// Keys are the keys that the server made.
type Keys interface {
	// Lookup is the key of a text, whether or not it is good now. It fails with [entities.ErrKeyNotFound].
	Lookup(ctx context.Context, text string) (admin.Key, error)
	// Used takes down that a request came with the key. It must not take long.
	Used(admin.KeyID)
}

// Options are what a [Gate] is made of.
type Options struct {
	// Keys are those that the server made; nil for none.
	Keys Keys
	// EnvironmentKey lets in as an admin of the default project; empty for none.
	EnvironmentKey string
	// Open lets everyone in who has no key, as an admin of the default project; but no pages of other sites.
	Open bool
	// Local is of an open server that only this machine can connect to: it wants to be called by an address or a name
	// of this machine, as any page of a name that leads here could have its browser ask for everything.
	Local bool
	Now   func() time.Time
	// Recheck is how often the key of a request that takes long is looked at; 0 for every [DefaultRecheck].
	Recheck time.Duration
}

// DefaultRecheck is how often the keys of those are looked at who follow a stream, say.
const DefaultRecheck = 5 * time.Second

// Gate lets requests in.
type Gate struct {
	options     Options
	environment [sha256.Size]byte
	// needs is what the routes need, by method and path.
	needs map[string]Needs
	// nowhere are the paths of requests that no route is for.
	nowhere map[string]bool
}

// New makes a gate.
func New(o Options) *Gate {
	o.Recheck = cmp.Or(o.Recheck, DefaultRecheck)
	return &Gate{
		options: o, environment: sha256.Sum256([]byte(o.EnvironmentKey)),
		needs: map[string]Needs{}, nowhere: map[string]bool{},
	}
}

// Identity is on whose behalf a request is made.
type Identity struct {
	Project entities.Project
	Role    admin.Role
	// KeyID is empty for the key of the environment, and where the server is open.
	KeyID admin.KeyID
	// Actor is how the audit calls it.
	Actor admin.Actor
}

// Operator reports whether it looks after the whole installation, and not just its project.
func (i Identity) Operator() bool {
	return i.Role == admin.RoleAdmin && i.Project == entities.DefaultProject
}

// SeesPayloads reports whether it may see what runs work on, and tokens of hooks.
func (i Identity) SeesPayloads() bool { return Read.allows(i.Role) }

func operator(a admin.Actor) Identity {
	return Identity{Project: entities.DefaultProject, Role: admin.RoleAdmin, Actor: a}
}

// identify finds out on whose behalf a request is made. It fails with [ErrUnauthorized].
func (g *Gate) identify(c echo.Context) (Identity, error) {
	text := bearer(c.Request())
	if g.options.EnvironmentKey != "" {
		given := sha256.Sum256([]byte(text))
		if subtle.ConstantTimeCompare(given[:], g.environment[:]) == 1 {
			return operator(admin.ActorEnvironment), nil
		}
	}
	if g.options.Keys != nil && strings.HasPrefix(text, keyPrefix) {
		return g.keyed(c.Request().Context(), text)
	}
	if g.options.Open { // clients send any word where there is no key
		return operator(admin.ActorOpen), g.letInOpen(c.Request())
	}
	return Identity{}, ErrUnauthorized
}

// bearer is the token that a request carries; empty for none.
func bearer(r *http.Request) string {
	if text, ok := strings.CutPrefix(r.Header.Get(echo.HeaderAuthorization), "Bearer "); ok {
		return text
	}
	return ""
}

// keyed is the identity of a key that the server made. Also an open server knows a key that is good no more.
func (g *Gate) keyed(ctx context.Context, text string) (Identity, error) {
	key, err := g.options.Keys.Lookup(ctx, text)
	switch {
	case errors.Is(err, admin.ErrKeyNotFound):
		return Identity{}, ErrUnauthorized
	case err != nil:
		return Identity{}, err
	case key.Revoked():
		return Identity{}, fmt.Errorf("API key %s has been revoked: %w", key.ID, ErrUnauthorized)
	case key.Expired(g.options.Now()):
		return Identity{}, fmt.Errorf("API key %s has expired: %w", key.ID, ErrUnauthorized)
	}
	return Identity{Project: key.Project, Role: key.Role, KeyID: key.ID, Actor: admin.Actor(key.ID)}, nil
}

const identityKey = "stepwell.identity"

// enter identifies a request and, if it has what the route needs, hands it on.
func (g *Gate) enter(c echo.Context, next echo.HandlerFunc, permit func(Identity) error) error {
	who, err := g.identify(c)
	if err != nil {
		return err
	}
	request := c.Request()
	ctx := admin.WithActor(request.Context(), who.Actor)
	if who.KeyID != "" {
		defer g.options.Keys.Used(who.KeyID)
		var stop func()
		ctx, stop = g.watched(ctx, bearer(request))
		defer stop()
	}
	if err := permit(who); err != nil {
		return err
	}
	c.Set(identityKey, who)
	c.SetRequest(request.WithContext(ctx))
	defer c.SetRequest(request) // others look at the context of the connection
	err = next(c)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrUnauthorized) {
		return cause
	}
	return err
}

// watched is a context that ends when the key of a request that takes long is no longer good. Most requests are over
// before anybody looks.
func (g *Gate) watched(ctx context.Context, text string) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	watch := time.AfterFunc(g.options.Recheck, func() { g.watch(ctx, text, cancel) })
	return ctx, func() {
		watch.Stop()
		cancel(nil)
	}
}

// watch looks again and again, until the context ends, whether a key is still good, and ends it when it is not.
func (g *Gate) watch(ctx context.Context, text string, end context.CancelCauseFunc) {
	ticker := time.NewTicker(g.options.Recheck)
	defer ticker.Stop()
	for {
		if _, err := g.keyed(ctx, text); errors.Is(err, ErrUnauthorized) {
			end(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Guard lets requests through that may do what the whole installation is concerned by: those of keys of the default
// project whose role is enough.
func (g *Gate) Guard(needs Needs) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			return g.enter(c, next, func(who Identity) error {
				if who.Project != entities.DefaultProject {
					return ErrOtherProject
				}
				return needs.permit(who)
			})
		}
	}
}

// Of is on whose behalf a request that came through a [Gate] is made. It panics on any other.
func Of(c echo.Context) Identity { return c.Get(identityKey).(Identity) }

// Project is the project that it is about.
func Project(c echo.Context) entities.Project { return Of(c).Project }
