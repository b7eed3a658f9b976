package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

var t0 = time.Date(2026, 11, 21, 1, 41, 43, 0, time.UTC)

// keyStore is a key store in memory.
type keyStore struct {
	mu   sync.Mutex
	keys map[string]admin.Key
	used []admin.KeyID
	err  error
	// checks counts the calls of Valid.
	checks int
}

func (r *keyStore) Lookup(_ context.Context, text string) (admin.Key, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k, ok := r.keys[text]; ok {
		return k, nil
	}
	if r.err != nil {
		return admin.Key{}, r.err
	}
	return admin.Key{}, admin.ErrKeyNotFound
}

func (r *keyStore) Used(id admin.KeyID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used = append(r.used, id)
}

func (r *keyStore) Valid(_ context.Context, clients []admin.Client) (map[admin.Client]bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	valid := map[admin.Client]bool{}
	for _, c := range clients {
		for _, k := range r.keys {
			valid[c] = valid[c] || k.ID == c.Key && !k.Revoked()
		}
	}
	r.checks++
	return valid, nil
}

func (r *keyStore) revoke(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.keys[text]
	k.RevokedAt = &t0
	r.keys[text] = k
}

func newKeyStore() *keyStore {
	at := t0
	return &keyStore{keys: map[string]admin.Key{
		"sw_read":    {ID: "key_read", Project: "default", Role: admin.RoleRead},
		"sw_shop":    {ID: "key_shop", Project: "shop", Role: admin.RoleAdmin},
		"sw_revoked": {ID: "key_revoked", Project: "default", Role: admin.RoleAdmin, RevokedAt: &at},
		"sw_expired": {ID: "key_expired", Project: "default", Role: admin.RoleAdmin, ExpiresAt: &at},
	}}
}

// callStore knows the token of one call.
type callStore struct{}

func (callStore) VerifyCall(_ context.Context, text string) (token.Call, bool, error) {
	switch text {
	case "swct_1":
		return token.Call{Project: "shop", RunID: "wrun_1", Invocation: "rh_1"}, true, nil
	case "swct_callback":
		return token.Callback("shop", "wrun_1", "a"), true, nil
	case "swct_escaped":
		return token.Callback("shop", "wrun_1", "a,b@c"), true, nil
	case "swct_ended":
		return token.Call{Project: "shop", RunID: "wrun_1", Invocation: "rh_2"}, true, nil
	default:
		return token.Call{}, false, nil
	}
}

var errEnded = errors.New("the invocation has ended")

func (callStore) CheckHere(_ context.Context, _ entities.Project) error { return nil }

func (callStore) CheckLease(_ context.Context, c token.Call) error {
	if c != (token.Call{Project: "shop", RunID: "wrun_1", Invocation: "rh_1"}) {
		return errEnded
	}
	return nil
}

// newServer returns a server with authenticated routes. GET /v1/wait answers when the request's context ends.
func newServer(o Options) *echo.Echo {
	o.Now = func() time.Time { return t0 }
	a, e := New(o), echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		status := http.StatusInternalServerError
		var routing *echo.HTTPError
		switch {
		case errors.Is(err, ErrUnauthorized):
			status = http.StatusUnauthorized
		case errors.Is(err, ErrForbidden):
			status = http.StatusForbidden
		case errors.As(err, &routing):
			status = routing.Code
		}
		_ = c.String(status, err.Error())
	}
	whoami := func(c echo.Context) error {
		return c.String(http.StatusOK, string(IdentityOf(c).Actor)+" "+string(Project(c)))
	}
	r := a.Group(e, "/v1")
	r.Handle("GET /read", Read, whoami)
	r.Handle("GET /metadata", Metadata, whoami)
	r.Handle("POST /sub/write", Write, whoami)
	r.Handle("PUT /sub/replace", Write, whoami)
	r.Handle("GET /runs/:id", Read, whoami)
	r.ForCall("GET /runs/:id")
	r.Handle("POST /runs/:id/steps/:stepId/result", Invoke, whoami)
	r.ForCallback("POST /runs/:id/steps/:stepId/result")
	r.Handle("POST /runs/:id", Write, whoami)
	r.Handle("GET /wait", Any, func(c echo.Context) error {
		<-c.Request().Context().Done()
		return c.Request().Context().Err()
	})
	r.group.GET("/unconfigured", whoami)
	e.GET("/metrics", whoami, a.Require(Read))
	return e
}

func get(e *echo.Echo, path, authorization string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Authorization", authorization)
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	closed, open := Options{EnvironmentKey: "k"}, Options{Open: true}
	for name, tt := range map[string]struct {
		options       Options
		authorization string
		path          string
		status        int
		body          string
	}{
		"environment":                    {closed, "Bearer k", "/v1/read", 200, "STEPWELL_API_KEY default"},
		"no key":                         {closed, "", "/v1/read", 401, ErrUnauthorized.Error()},
		"empty key":                      {closed, "Bearer ", "/v1/read", 401, ErrUnauthorized.Error()},
		"wrong key":                      {closed, "Bearer K", "/v1/read", 401, ErrUnauthorized.Error()},
		"longer key":                     {closed, "Bearer kk", "/v1/read", 401, ErrUnauthorized.Error()},
		"padded key":                     {closed, "Bearer  k", "/v1/read", 401, ErrUnauthorized.Error()},
		"other scheme":                   {closed, "Basic k", "/v1/read", 401, ErrUnauthorized.Error()},
		"no scheme":                      {closed, "k", "/v1/read", 401, ErrUnauthorized.Error()},
		"created key, no scheme":         {closed, "sw_read", "/v1/read", 401, ErrUnauthorized.Error()},
		"server without keys":            {Options{}, "Bearer ", "/v1/read", 401, ErrUnauthorized.Error()},
		"created key":                    {closed, "Bearer sw_read", "/v1/read", 200, "key_read default"},
		"created key of another project": {closed, "Bearer sw_shop", "/v1/read", 200, "key_shop shop"},
		"unknown key":                    {closed, "Bearer sw_none", "/v1/read", 401, ErrUnauthorized.Error()},
		"revoked key":                    {closed, "Bearer sw_revoked", "/v1/read", 401, ""},
		"expired key":                    {closed, "Bearer sw_expired", "/v1/read", 401, ""},
		"open, no key":                   {open, "", "/v1/read", 200, "open default"},
		"open, arbitrary token":          {open, "Bearer none", "/v1/read", 200, "open default"},
		"open, created key":              {open, "Bearer sw_shop", "/v1/read", 200, "key_shop shop"},
		"open, revoked key":              {open, "Bearer sw_revoked", "/v1/read", 401, ""},
		"open, unknown key":              {open, "Bearer sw_none", "/v1/read", 401, ErrUnauthorized.Error()},
		"route without permission":       {closed, "Bearer k", "/v1/unconfigured", 403, ""},
		"no route":                       {closed, "Bearer k", "/v1/none", 404, ""},
		"no route in a subgroup":         {closed, "Bearer sw_read", "/v1/sub/none", 404, ""},
		"path of a subgroup":             {closed, "Bearer sw_read", "/v1/sub", 404, ""},
		"no route, no key":               {closed, "", "/v1/none", 401, ErrUnauthorized.Error()},
		"call":                           {closed, "Bearer swct_1", "/v1/runs/wrun_1", 200, "function shop"},
		"call, another run":              {closed, "Bearer swct_1", "/v1/runs/wrun_2", 403, ""},
		"call, another route":            {closed, "Bearer swct_1", "/v1/read", 403, ""},
		"call, no route":                 {closed, "Bearer swct_1", "/v1/none", 403, ""},
		"call, operator-wide":            {closed, "Bearer swct_1", "/metrics", 403, ""},
		"call, ended":                    {closed, "Bearer swct_ended", "/v1/runs/wrun_1", 500, errEnded.Error()},
		"call, invalid":                  {closed, "Bearer swct_none", "/v1/runs/wrun_1", 401, ""},
		"open, call":                     {open, "Bearer swct_1", "/v1/read", 403, ""},
		"open, invalid call":             {open, "Bearer swct_none", "/v1/read", 401, ""},
		"operator-wide":                  {closed, "Bearer sw_read", "/metrics", 200, "key_read default"},
		"operator-wide, other project":   {closed, "Bearer sw_shop", "/metrics", 403, errOtherProject.Error()},
		"operator-wide, no key":          {closed, "", "/metrics", 401, ErrUnauthorized.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.options.Keys, tt.options.Calls = newKeyStore(), callStore{}
			got := get(newServer(tt.options), tt.path, tt.authorization)
			if got.Code != tt.status || tt.body != "" && got.Body.String() != tt.body {
				t.Errorf("got %d %s, want %d %s", got.Code, got.Body, tt.status, tt.body)
			}
		})
	}
}

// TestPermissions checks every permission with every role.
func TestPermissions(t *testing.T) {
	t.Parallel()
	want := map[Permission]string{
		Admin: "admin", Write: "admin write", Read: "admin write read", Metadata: "admin write read metadata",
		Invoke: "admin write invoke", Any: "admin write read metadata invoke", "unknown key": "",
	}
	for permission, roles := range want {
		got := ""
		for _, role := range admin.Roles() {
			err := (Identity{Role: role}).Check(permission)
			if err == nil {
				got += " " + string(role)
			} else if !errors.Is(err, ErrForbidden) {
				t.Errorf("%s: got %v", role, err)
			}
		}
		if got != "" {
			got = got[1:]
		}
		check.Equal(t, string(permission), got, roles)
	}
	err := (Identity{Role: admin.RoleInvoke}).Check(Metadata)
	if err == nil || err.Error() != "the key's role is invoke; this needs admin, write, read or metadata" {
		t.Errorf("got %v", err)
	}
	for _, role := range admin.Roles() {
		sees := role == admin.RoleAdmin || role == admin.RoleWrite || role == admin.RoleRead
		check.Equal(t, fmt.Sprintf("%s sees payloads", role), (Identity{Role: role}).SeesPayloads(), sees)
		if got := (Identity{Role: role, Project: "shop"}).Operator(); got {
			t.Errorf("%s of another project is an operator", role)
		}
	}
}

// TestUnreachableDatabaseIsAServerError checks that requests fail, but not as unauthorized.
func TestUnreachableDatabaseIsAServerError(t *testing.T) {
	t.Parallel()
	keys := newKeyStore()
	keys.err = errors.New("database unreachable")
	for _, open := range []bool{true, false} {
		if got := get(newServer(Options{Keys: keys, Open: open}), "/v1/read", "Bearer sw_x"); got.Code != 500 {
			t.Errorf("got %d %s", got.Code, got.Body)
		}
	}
}

// TestRevocationEndsRunningRequests checks that requests with other keys go on.
func TestRevocationEndsRunningRequests(t *testing.T) {
	t.Parallel()
	keys := newKeyStore()
	e := newServer(Options{Keys: keys, EnvironmentKey: "k", Recheck: time.Millisecond})
	ended := make(chan int, 1)
	go func() { ended <- get(e, "/v1/wait", "Bearer sw_read").Code }()
	other, cancel := context.WithCancel(t.Context())
	otherEnded := make(chan struct{})
	go func() {
		defer close(otherEnded)
		r := httptest.NewRequest("GET", "/v1/wait", nil).WithContext(other)
		r.Header.Set("Authorization", "Bearer sw_shop")
		e.ServeHTTP(httptest.NewRecorder(), r)
	}()
	keys.mu.Lock()
	keys.err = errors.New("database unreachable") // this says nothing about the key
	keys.mu.Unlock()
	keys.revoke("sw_read")
	check.Equal(t, "the status", <-ended, http.StatusUnauthorized)
	select {
	case <-otherEnded:
		t.Error("the request with the other key ended too")
	default:
	}
	cancel()
	<-otherEnded
}

// TestOpenRequestsAreCheckedTogether: many streams of one client are one question, and none is asked without requests.
func TestOpenRequestsAreCheckedTogether(t *testing.T) {
	t.Parallel()
	keys := newKeyStore()
	check.Equal(t, "how often they are asked", New(Options{Keys: keys}).revocations.every, 10*time.Second)
	w := &New(Options{Keys: keys, Recheck: time.Hour}).revocations
	w.check()
	var open []context.Context
	for range 30 {
		ctx, stop := w.watch(t.Context(), admin.Client{Key: "key_read"})
		defer stop()
		open = append(open, ctx)
	}
	w.check()
	if keys.checks != 1 || open[0].Err() != nil {
		t.Errorf("%d checks, %v; want 1", keys.checks, open[0].Err())
	}
	keys.revoke("sw_read")
	w.check()
	for i, ctx := range open {
		if !errors.Is(context.Cause(ctx), ErrUnauthorized) {
			t.Errorf("request %d: got %v", i, context.Cause(ctx))
		}
	}
}

func TestUseOfKeysIsRecorded(t *testing.T) {
	t.Parallel()
	keys := newKeyStore()
	e := newServer(Options{Keys: keys, EnvironmentKey: "k"})
	for _, key := range []string{"sw_read", "sw_expired", "k", "", "sw_shop"} {
		get(e, "/v1/read", "Bearer "+key)
	}
	if got := keys.used; len(got) != 2 || got[0] != "key_read" || got[1] != "key_shop" {
		t.Errorf("got %v", got)
	}
}

func TestProjectPanicsWithoutAuthentication(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("an unauthenticated request has a project")
		}
	}()
	Project(echo.New().NewContext(httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()))
}

// TestCallbackTokens are for the result of their own step, and for nothing else.
func TestCallbackTokens(t *testing.T) {
	t.Parallel()
	e := newServer(Options{Calls: callStore{}})
	for name, tt := range map[string]struct {
		method, path, token string
		status              int
	}{
		"its step":           {http.MethodPost, "/v1/runs/wrun_1/steps/a/result", "swct_callback", 200},
		"escaped in the URL": {http.MethodPost, "/v1/runs/wrun_1/steps/" + url.PathEscape("a,b@c") + "/result", "swct_escaped", 200},
		"not escaped":        {http.MethodPost, "/v1/runs/wrun_1/steps/a,b@c/result", "swct_escaped", 200},
		"escaped twice":      {http.MethodPost, "/v1/runs/wrun_1/steps/a%252Cb@c/result", "swct_escaped", 403},
		"another step":       {http.MethodPost, "/v1/runs/wrun_1/steps/b/result", "swct_callback", 403},
		"another run":        {http.MethodPost, "/v1/runs/wrun_2/steps/a/result", "swct_callback", 403},
		"the run":            {http.MethodGet, "/v1/runs/wrun_1", "swct_callback", 403},
		"another route":      {http.MethodGet, "/v1/read", "swct_callback", 403},
		"the token of calls": {http.MethodPost, "/v1/runs/wrun_1/steps/a/result", "swct_1", 403},
	} {
		r := httptest.NewRequest(tt.method, tt.path, nil)
		r.Header.Set("Authorization", "Bearer "+tt.token)
		w := httptest.NewRecorder()
		if e.ServeHTTP(w, r); w.Code != tt.status {
			t.Errorf("%s: got %d %s, want %d", name, w.Code, w.Body, tt.status)
		}
	}
}
