package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// clientJSON says who makes the requests, and to which server.
type clientJSON struct {
	Project  entities.Project `json:"project"`
	Role     admin.Role       `json:"role"`
	Actor    admin.Actor      `json:"actor"`
	Operator bool             `json:"operator"`
	// The key's fields are missing for the environment's key, and for requests without one.
	KeyName   string   `json:"keyName,omitempty"`
	ExpiresAt api.Time `json:"expiresAt,omitzero"`
	Version   string   `json:"version,omitempty"`
}

// describeClient answers with what the client's key may do.
func (s *Server) describeClient(r *request) error {
	i := auth.IdentityOf(r)
	return r.JSON(http.StatusOK, clientJSON{
		i.Project, i.Role, i.Actor, i.Operator(), i.Key().Name, optionalTime(i.Key().ExpiresAt), s.Version,
	})
}

// keyJSON is the JSON form of an API key, without the key itself.
type keyJSON struct {
	ID          admin.KeyID      `json:"id"`
	Project     entities.Project `json:"project"`
	Name        string           `json:"name"`
	Role        admin.Role       `json:"role"`
	Deployments string           `json:"deployments,omitempty"`
	Prefix      string           `json:"prefix"`
	CreatedAt   api.Time         `json:"createdAt"`
	ExpiresAt   api.Time         `json:"expiresAt,omitzero"`
	RevokedAt   api.Time         `json:"revokedAt,omitzero"`
	LastUsedAt  api.Time         `json:"lastUsedAt,omitzero"`
}

func newKeyJSON(k admin.Key) keyJSON {
	return keyJSON{
		k.ID, k.Project, k.Name, k.Role, k.Deployments, k.Prefix, timestamp(k.CreatedAt), optionalTime(k.ExpiresAt),
		optionalTime(k.RevokedAt), optionalTime(k.LastUsedAt),
	}
}

// projectOr returns the named project, or the key's own if the name is empty. Only operators may name another project.
func (r *request) projectOr(name string) (entities.Project, error) {
	named, own := entities.Project(name), r.project()
	if name == "" || named == own {
		return own, nil
	}
	if !auth.IdentityOf(r).Operator() {
		return "", auth.ErrNotOperator
	}
	return named, entities.ValidateID("project", name)
}

// queryProject returns the project that the query names, or the key's own.
func (r *request) queryProject() entities.Project {
	p, err := r.projectOr(r.QueryParam("project"))
	r.fail(inParam("project", err))
	return p
}

// listKeys lists a project's keys, including revoked and expired ones.
func (s *Server) listKeys(r *request) error {
	return answerOfProject(r, newKeyJSON, admin.ListKeys)
}

// answerOfProject answers with a page of rows of the project that the query names, newest first.
func answerOfProject[R, T any](
	r *request, encode func(R) T,
	find func(context.Context, pg.Querier, entities.Project, pg.Page) ([]R, string, error),
) error {
	project, page := r.queryProject(), r.page(newestFirst)
	return answerPage(r, encode, func() ([]R, string, error) { return find(r.ctx(), r.reader, project, page) })
}

// createKey creates a key. Only this answer contains the key itself.
func (s *Server) createKey(r *request) error {
	var body struct {
		Name        string     `json:"name"`
		Role        admin.Role `json:"role"`
		Deployments string     `json:"deployments"`
		Project     string     `json:"project"`
		ExpiresAt   instant    `json:"expiresAt"`
	}
	r.body(&body)
	project, err := r.projectOr(body.Project)
	r.fail(inField("project", err))
	if r.err != nil {
		return r.err
	}
	k := admin.Key{Project: project, Name: body.Name, Role: body.Role, Deployments: body.Deployments}
	if at := time.Time(body.ExpiresAt); !at.IsZero() {
		k.ExpiresAt = &at
	}
	created, text, err := s.Keys.Mint(r.ctx(), k)
	if err != nil {
		return err
	}
	r.Response().Header().Set(echo.HeaderCacheControl, "no-store")
	r.Response().Header().Set(echo.HeaderLocation, "/v1/keys/"+string(created.ID))
	return r.JSON(http.StatusCreated, struct {
		keyJSON

		Key string `json:"key"`
	}{newKeyJSON(created), text})
}

func (s *Server) getKey(r *request) error {
	project, id := r.queryProject(), admin.KeyID(r.pathID("id", "key ID"))
	return answerAs(r, newKeyJSON, func() (admin.Key, error) {
		return admin.KeyByID(r.ctx(), s.Reader, project, id)
	})
}

// revokeKey revokes a key for good. It stays in lists, because the audit log refers to it.
func (s *Server) revokeKey(r *request) error {
	project, id := r.queryProject(), admin.KeyID(r.pathID("id", "key ID"))
	return answerNothing(r, func() error { return s.Keys.Revoke(r.ctx(), project, id) })
}

type projectJSON struct {
	Name      entities.Project `json:"name"`
	CreatedAt api.Time         `json:"createdAt"`
	PausedAt  api.Time         `json:"pausedAt,omitzero"`
	Limits    *limitsJSON      `json:"limits,omitempty"`
}

// limitsJSON is the JSON form of a project's limits and their use.
type limitsJSON struct {
	DailyStarts    *int64   `json:"dailyStarts,omitempty"`
	StartsToday    *int64   `json:"startsToday,omitempty"`
	StorageBytes   *int64   `json:"storageBytes,omitempty"`
	StoredBytes    *int64   `json:"storedBytes,omitempty"`
	StoredAt       api.Time `json:"storedAt,omitzero"`
	MaxDepth       *int64   `json:"maxDepth,omitempty"`
	MaxDescendants *int64   `json:"maxDescendants,omitempty"`
}

func newProjectJSON(p admin.ListedProject) projectJSON {
	j := projectJSON{Name: p.Name, CreatedAt: timestamp(p.CreatedAt), PausedAt: optionalTime(p.PausedAt)}
	if !p.Equal(admin.Limits{}) {
		j.Limits = &limitsJSON{
			p.DailyStarts, p.StartsToday, p.StorageBytes, p.StoredBytes, optionalTime(p.StoredAt), p.MaxDepth, p.MaxDescendants,
		}
	}
	return j
}

// requireOperator fails unless the client is an operator.
func (r *request) requireOperator() {
	if !auth.IdentityOf(r).Operator() {
		r.fail(auth.ErrNotOperator)
	}
}

func (s *Server) listProjects(r *request) error {
	r.requireOperator()
	return answerPage(r, newProjectJSON, func() ([]admin.ListedProject, string, error) {
		all, err := admin.ListProjects(r.ctx(), s.Reader, s.Log.Now())
		return all, "", err
	})
}

// limitChange is a limit in a body. A missing one stays as it is; null removes the limit.
type limitChange struct {
	given bool
	value *int64
}

// UnmarshalJSON implements [json.Unmarshaler].
func (l *limitChange) UnmarshalJSON(data []byte) error {
	l.given = true
	if string(data) == "null" {
		return nil
	}
	n, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%s is neither a whole number from 0 nor null", data)
	}
	l.value = &n
	return nil
}

// applyTo sets the limit if one was given.
func (l *limitChange) applyTo(limit **int64) {
	if l.given {
		*limit = l.value
	}
}

// projectBody is the body of a request that creates a project, sets its limits, pauses or resumes it.
type projectBody struct {
	Paused *bool `json:"paused"`
	Limits struct {
		DailyStarts    limitChange `json:"dailyStarts"`
		StorageBytes   limitChange `json:"storageBytes"`
		MaxDepth       limitChange `json:"maxDepth"`
		MaxDescendants limitChange `json:"maxDescendants"`
	} `json:"limits"`
}

// change returns the limits of a project after the request.
func (b *projectBody) change(l admin.Limits) admin.Limits {
	b.Limits.DailyStarts.applyTo(&l.DailyStarts)
	b.Limits.StorageBytes.applyTo(&l.StorageBytes)
	b.Limits.MaxDepth.applyTo(&l.MaxDepth)
	b.Limits.MaxDescendants.applyTo(&l.MaxDescendants)
	return l
}

// putProject creates a project unless it exists, changes the limits that the body names, and pauses or resumes it if
// the body says so.
func (s *Server) putProject(r *request) error {
	r.requireOperator()
	name := entities.Project(r.pathID("name", "project"))
	var body projectBody
	r.optionalBody(&body)
	return answerAs(r, newProjectJSON, func() (admin.ListedProject, error) {
		p, err := s.Projects.Put(r.ctx(), name, body.change)
		if err != nil || body.Paused == nil {
			return p, err
		}
		if p, err = s.Projects.SetPaused(r.ctx(), name, *body.Paused); err == nil && !*body.Paused {
			err = s.Queue.Resume(r.ctx(), name)
		}
		return p, err
	})
}

// actionJSON is the JSON form of an entry of the audit log.
type actionJSON struct {
	Seq     int64            `json:"seq"`
	At      api.Time         `json:"at"`
	Project entities.Project `json:"project"`
	Actor   admin.Actor      `json:"actor"`
	Address string           `json:"address,omitempty"`
	Action  admin.ActionKind `json:"action"`
	Subject string           `json:"subject"`
	Detail  json.RawMessage  `json:"detail"`
}

func newActionJSON(a admin.Action) actionJSON {
	return actionJSON{a.Seq, timestamp(a.At), a.Project, a.Actor, a.Address, a.Action, a.Subject, a.Detail}
}

// listAudit answers with a page of a project's audit log, of one actor, action or subject if the query names it.
func (s *Server) listAudit(r *request) error {
	f := admin.ActionFilter{
		Actor: admin.Actor(r.QueryParam("actor")), Action: admin.ActionKind(r.QueryParam("action")),
		Subject: r.QueryParam("subject"),
	}
	return answerOfProject(r, newActionJSON,
		func(ctx context.Context, q pg.Querier, p entities.Project, page pg.Page) ([]admin.Action, string, error) {
			return admin.ListActions(ctx, q, p, f, page)
		})
}

// secretJSON is the JSON form of a secret, without its values.
type secretJSON struct {
	Name      string   `json:"name"`
	CreatedAt api.Time `json:"createdAt"`
	UpdatedAt api.Time `json:"updatedAt"`
	Origins   []string `json:"origins,omitempty"`
}

func newSecretJSON(s admin.Secret) secretJSON {
	return secretJSON{s.Name, timestamp(s.CreatedAt), timestamp(s.UpdatedAt), s.Origins}
}

func (s *Server) listSecrets(r *request) error {
	return answerAll(r, newSecretJSON, s.Secrets.List)
}

// putSecret creates a secret or replaces its values.
func (s *Server) putSecret(r *request) error {
	var body struct {
		Values  []admin.SecretValue `json:"values"`
		Origins []string            `json:"origins"`
	}
	name := r.pathID("name", "secret name")
	r.body(&body)
	return answerAs(r, newSecretJSON, func() (admin.Secret, error) {
		v, err := s.Secrets.Put(r.ctx(), r.project(), name, body.Values, body.Origins...)
		return v, inField("values", err)
	})
}

func (s *Server) removeSecret(r *request) error {
	return deleteOne(r, r.pathID("name", "secret name"), s.Secrets.Delete)
}

type signingKeyJSON struct {
	ID        string   `json:"id"`
	CreatedAt api.Time `json:"createdAt"`
	// Secret is present only in the answer that creates the key.
	Secret string `json:"secret,omitempty"`
}

func newSigningKeyJSON(k admin.SigningKey) signingKeyJSON {
	return signingKeyJSON{ID: k.ID, CreatedAt: timestamp(k.CreatedAt)}
}

func (s *Server) listSigningKeys(r *request) error {
	return answerAll(r, newSigningKeyJSON, s.SigningKeys.List)
}

func (s *Server) createSigningKey(r *request) error {
	key, secret, err := s.SigningKeys.Create(r.ctx(), r.project())
	if err != nil {
		return err
	}
	v := newSigningKeyJSON(key)
	v.Secret = secret.Reveal()
	r.Response().Header().Set(echo.HeaderCacheControl, "no-store")
	return r.JSON(http.StatusCreated, v)
}

func (s *Server) deleteSigningKey(r *request) error {
	return deleteOne(r, r.pathID("id", "signing key ID"), s.SigningKeys.Delete)
}

// sessionJSON is the JSON form of a session of the dashboard.
type sessionJSON struct {
	ID        string      `json:"id"`
	KeyID     admin.KeyID `json:"keyId,omitempty"`
	KeyName   string      `json:"keyName,omitempty"`
	Role      admin.Role  `json:"role"`
	CreatedAt api.Time    `json:"createdAt"`
	UsedAt    api.Time    `json:"usedAt"`
	// Current marks the session that makes the request.
	Current bool `json:"current,omitempty"`
}

// listSessions lists the sessions of the dashboard that have opened the project.
func (s *Server) listSessions(r *request) error {
	page := r.page(oldestFirst)
	cookie := auth.CookieOf(r.Request())
	encode := func(o admin.OpenSession) sessionJSON {
		role := o.Role
		if o.KeyID == "" {
			role = admin.RoleAdmin // of the key in the environment
		}
		return sessionJSON{
			o.ID.String(), o.KeyID, o.KeyName, role, timestamp(o.CreatedAt), timestamp(o.UsedAt),
			cookie != "" && o.ID == s.Sessions.ID(cookie),
		}
	}
	return answerPage(r, encode, func() ([]admin.OpenSession, string, error) {
		return s.Sessions.List(r.ctx(), r.project(), page)
	})
}

// endSession ends a session for the project.
func (s *Server) endSession(r *request) error {
	id, err := admin.ParseSessionID(r.pathID("id", "session ID"))
	r.fail(err)
	return answerNothing(r, func() error { return s.Sessions.Close(r.ctx(), r.project(), id) })
}

// createCode makes a code with which a browser gets the rights of the request's key. A session cannot make one, since
// that would outlive the session.
func (s *Server) createCode(r *request) error {
	i := auth.IdentityOf(r)
	if auth.FromBrowser(r.Request()) {
		return errCodeOfBrowser
	}
	opened := access.Opened{Project: i.Project}
	if key := i.Key(); key.ID != "" {
		opened.Key = &key
	}
	var answer struct {
		Code      string   `json:"code,omitempty"`
		ExpiresAt api.Time `json:"expiresAt,omitzero"`
	}
	if i.Actor != admin.ActorOpen {
		code, err := s.Sessions.Code(r.Request().Context(), opened)
		if err != nil {
			return err
		}
		expires := s.Log.Now().Add(access.CodeTime)
		answer.Code, answer.ExpiresAt = code, optionalTime(&expires)
	}
	r.Response().Header().Set(echo.HeaderCacheControl, "no-store")
	return r.JSON(http.StatusCreated, answer)
}

// errCodeOfBrowser is an [auth.ErrForbidden].
var errCodeOfBrowser = fmt.Errorf("%w: a session makes no codes: use /v1 with a key", auth.ErrForbidden)

type serversJSON struct {
	At       api.Time       `json:"at"`
	Servers  []serverJSON   `json:"servers"`
	Extended int            `json:"extended"`
	Capped   bool           `json:"capped"`
	Stranded []strandedJSON `json:"stranded"`
	More     bool           `json:"moreStranded"`
}

type serverJSON struct {
	ID         string   `json:"id"`
	Host       string   `json:"host"`
	Version    string   `json:"version,omitempty"`
	Commit     string   `json:"commit,omitempty"`
	Role       string   `json:"role,omitempty"`
	StartedAt  api.Time `json:"startedAt"`
	BeatAt     api.Time `json:"beatAt"`
	Deliveries int      `json:"deliveries"`
}

type strandedJSON struct {
	RunID    entities.RunID   `json:"runId"`
	Project  entities.Project `json:"project"`
	Workflow string           `json:"workflow"`
	Reason   string           `json:"reason"`
	Since    api.Time         `json:"since"`
	Wakes    int              `json:"wakes"`
}

// listServers answers with the processes that deliver, and with the stranded runs of all projects.
func (s *Server) listServers(r *request) error {
	r.requireOperator()
	return answerAs(r, newServersJSON, func() (cluster.Servers, error) {
		return cluster.ListServers(r.ctx(), s.Reader)
	})
}

func newServersJSON(s cluster.Servers) serversJSON {
	server := func(p cluster.Server) serverJSON {
		return serverJSON{
			p.ID, p.Host, p.Version, p.Commit, p.Role, timestamp(p.StartedAt), timestamp(p.BeatAt), p.Deliveries,
		}
	}
	stranded := func(r cluster.StrandedRun) strandedJSON {
		return strandedJSON{r.ID, r.Project, r.WorkflowName, r.Reason, timestamp(r.StrandedAt), r.Repairs}
	}
	return serversJSON{
		timestamp(s.Now), encodeAll(s.List, server), s.Extended, s.Capped, encodeAll(s.Stranded, stranded), s.MoreStranded,
	}
}
