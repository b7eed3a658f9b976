package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/access"
	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// clientJSON says who makes the requests, and to which server.
type clientJSON struct {
	Project  entities.Project `json:"project"`
	Role     admin.Role       `json:"role"`
	Actor    admin.Actor      `json:"actor"`
	Operator bool             `json:"operator"`
	// The key's fields are missing for the environment's key, and for requests without one.
	KeyName   string     `json:"keyName,omitempty"`
	ExpiresAt *timestamp `json:"expiresAt,omitempty"`
	Version   string     `json:"version,omitempty"`
}

// describeClient answers with what the client's key may do.
func (s *Server) describeClient(c echo.Context) error {
	i := auth.IdentityOf(c)
	return c.JSON(http.StatusOK, clientJSON{
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
	CreatedAt   timestamp        `json:"createdAt"`
	ExpiresAt   *timestamp       `json:"expiresAt,omitempty"`
	RevokedAt   *timestamp       `json:"revokedAt,omitempty"`
	LastUsedAt  *timestamp       `json:"lastUsedAt,omitempty"`
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
func (s *Server) listKeys(c echo.Context) error {
	return answerOfProject(s.request(c), newKeyJSON, admin.ListKeys)
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
func (s *Server) createKey(c echo.Context) error {
	var body struct {
		Name        string     `json:"name"`
		Role        admin.Role `json:"role"`
		Deployments string     `json:"deployments"`
		Project     string     `json:"project"`
		ExpiresAt   instant    `json:"expiresAt"`
	}
	r := s.request(c)
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
	c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
	c.Response().Header().Set(echo.HeaderLocation, "/v1/keys/"+string(created.ID))
	return c.JSON(http.StatusCreated, struct {
		keyJSON

		Key string `json:"key"`
	}{newKeyJSON(created), text})
}

func (s *Server) getKey(c echo.Context) error {
	r := s.request(c)
	project, id := r.queryProject(), admin.KeyID(r.pathID("id", "key ID"))
	return answer(r, http.StatusOK, newKeyJSON, func() (admin.Key, error) {
		return admin.KeyByID(r.ctx(), s.Reader, project, id)
	})
}

// revokeKey revokes a key for good. It stays in lists, because the audit log refers to it.
func (s *Server) revokeKey(c echo.Context) error {
	r := s.request(c)
	project, id := r.queryProject(), admin.KeyID(r.pathID("id", "key ID"))
	return answerNothing(r, func() error { return s.Keys.Revoke(r.ctx(), project, id) })
}

// projectJSON is the JSON form of a project.
type projectJSON struct {
	Name      entities.Project `json:"name"`
	CreatedAt timestamp        `json:"createdAt"`
	Limits    *limitsJSON      `json:"limits,omitempty"`
}

// limitsJSON is the JSON form of a project's limits and their use.
type limitsJSON struct {
	DailyStarts  *int64     `json:"dailyStarts,omitempty"`
	StartsToday  *int64     `json:"startsToday,omitempty"`
	StorageBytes *int64     `json:"storageBytes,omitempty"`
	StoredBytes  *int64     `json:"storedBytes,omitempty"`
	StoredAt     *timestamp `json:"storedAt,omitempty"`
}

func newProjectJSON(p admin.ListedProject) projectJSON {
	j := projectJSON{Name: p.Name, CreatedAt: timestamp(p.CreatedAt)}
	if p.DailyStarts != nil || p.StorageBytes != nil {
		j.Limits = &limitsJSON{p.DailyStarts, p.StartsToday, p.StorageBytes, p.StoredBytes, optionalTime(p.StoredAt)}
	}
	return j
}

// requireOperator fails unless the client is an operator.
func (r *request) requireOperator() {
	if !auth.IdentityOf(r).Operator() {
		r.fail(auth.ErrNotOperator)
	}
}

func (s *Server) listProjects(c echo.Context) error {
	r := s.request(c)
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

// projectBody is the body of a request that creates a project or sets its limits.
type projectBody struct {
	Limits struct {
		DailyStarts  limitChange `json:"dailyStarts"`
		StorageBytes limitChange `json:"storageBytes"`
	} `json:"limits"`
}

// change returns the limits of a project after the request.
func (b *projectBody) change(l admin.Limits) admin.Limits {
	b.Limits.DailyStarts.applyTo(&l.DailyStarts)
	b.Limits.StorageBytes.applyTo(&l.StorageBytes)
	return l
}

// putProject creates a project unless it exists, and changes the limits that the body names.
func (s *Server) putProject(c echo.Context) error {
	r := s.request(c)
	r.requireOperator()
	name := entities.Project(r.pathID("name", "project"))
	var body projectBody
	r.optionalBody(&body)
	return answer(r, http.StatusOK, newProjectJSON, func() (admin.ListedProject, error) {
		return s.Projects.Put(r.ctx(), name, body.change)
	})
}

// actionJSON is the JSON form of an entry of the audit log.
type actionJSON struct {
	Seq     int64            `json:"seq"`
	At      timestamp        `json:"at"`
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
func (s *Server) listAudit(c echo.Context) error {
	f := admin.ActionFilter{
		Actor: admin.Actor(c.QueryParam("actor")), Action: admin.ActionKind(c.QueryParam("action")),
		Subject: c.QueryParam("subject"),
	}
	return answerOfProject(s.request(c), newActionJSON,
		func(ctx context.Context, q pg.Querier, p entities.Project, page pg.Page) ([]admin.Action, string, error) {
			return admin.ListActions(ctx, q, p, f, page)
		})
}

// secretJSON is the JSON form of a webhook secret, without its values.
type secretJSON struct {
	Name      string    `json:"name"`
	CreatedAt timestamp `json:"createdAt"`
	UpdatedAt timestamp `json:"updatedAt"`
}

func newSecretJSON(s admin.Secret) secretJSON {
	return secretJSON{s.Name, timestamp(s.CreatedAt), timestamp(s.UpdatedAt)}
}

func (s *Server) listSecrets(c echo.Context) error {
	return answerAll(s.request(c), newSecretJSON, s.Secrets.List)
}

// putSecret creates a secret or replaces its values.
func (s *Server) putSecret(c echo.Context) error {
	var body struct {
		Values []string `json:"values"`
	}
	r := s.request(c)
	name := r.pathID("name", "secret name")
	r.body(&body)
	values := make([]admin.SecretValue, len(body.Values))
	for i, v := range body.Values {
		values[i] = admin.SecretValue(v)
	}
	return answer(r, http.StatusOK, newSecretJSON, func() (admin.Secret, error) {
		v, err := s.Secrets.Put(r.ctx(), r.project(), name, values)
		return v, inField("values", err)
	})
}

func (s *Server) removeSecret(c echo.Context) error {
	return deleteByID(s.request(c), "name", "secret name", s.Secrets.Delete)
}

// signingKeyJSON is the JSON form of a signing key.
type signingKeyJSON struct {
	ID        string    `json:"id"`
	CreatedAt timestamp `json:"createdAt"`
	// Secret is present only in the answer that creates the key.
	Secret string `json:"secret,omitempty"`
}

func newSigningKeyJSON(k admin.SigningKey) signingKeyJSON {
	return signingKeyJSON{ID: k.ID, CreatedAt: timestamp(k.CreatedAt)}
}

func (s *Server) listSigningKeys(c echo.Context) error {
	return answerAll(s.request(c), newSigningKeyJSON, s.SigningKeys.List)
}

func (s *Server) createSigningKey(c echo.Context) error {
	r := s.request(c)
	key, secret, err := s.SigningKeys.Create(r.ctx(), r.project())
	if err != nil {
		return err
	}
	v := newSigningKeyJSON(key)
	v.Secret = secret.Reveal()
	c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
	return c.JSON(http.StatusCreated, v)
}

func (s *Server) deleteSigningKey(c echo.Context) error {
	return deleteByID(s.request(c), "id", "signing key ID", s.SigningKeys.Delete)
}

// sessionJSON is the JSON form of a session of the dashboard.
type sessionJSON struct {
	ID        string      `json:"id"`
	KeyID     admin.KeyID `json:"keyId,omitempty"`
	KeyName   string      `json:"keyName,omitempty"`
	Role      admin.Role  `json:"role"`
	CreatedAt timestamp   `json:"createdAt"`
	UsedAt    timestamp   `json:"usedAt"`
	// Current marks the session that makes the request.
	Current bool `json:"current,omitempty"`
}

// listSessions lists the sessions of the dashboard that have opened the project.
func (s *Server) listSessions(c echo.Context) error {
	r := s.request(c)
	page := r.page(oldestFirst)
	cookie := auth.CookieOf(c.Request())
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
func (s *Server) endSession(c echo.Context) error {
	r := s.request(c)
	id, err := admin.ParseSessionID(r.pathID("id", "session ID"))
	r.fail(err)
	return answerNothing(r, func() error { return s.Sessions.Close(r.ctx(), r.project(), id) })
}

// createCode makes a code with which a browser gets the rights of the request's key. A session cannot make one, since
// that would outlive the session.
func (s *Server) createCode(c echo.Context) error {
	i := auth.IdentityOf(c)
	if auth.FromBrowser(c.Request()) {
		return errCodeOfBrowser
	}
	opened := access.Opened{Project: i.Project}
	if key := i.Key(); key.ID != "" {
		opened.Key = &key
	}
	var answer struct {
		Code      string     `json:"code,omitempty"`
		ExpiresAt *timestamp `json:"expiresAt,omitempty"`
	}
	if i.Actor != admin.ActorOpen {
		code, err := s.Sessions.Code(c.Request().Context(), opened)
		if err != nil {
			return err
		}
		expires := s.Log.Now().Add(access.CodeTime)
		answer.Code, answer.ExpiresAt = code, optionalTime(&expires)
	}
	c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
	return c.JSON(http.StatusCreated, answer)
}

// errCodeOfBrowser is an [auth.ErrForbidden].
var errCodeOfBrowser = fmt.Errorf("%w: a session makes no codes: use /v1 with a key", auth.ErrForbidden)

// serversJSON is the JSON form of the servers.
type serversJSON struct {
	At       timestamp      `json:"at"`
	Servers  []serverJSON   `json:"servers"`
	Extended int            `json:"extended"`
	Capped   bool           `json:"capped"`
	Stranded []strandedJSON `json:"stranded"`
	More     bool           `json:"moreStranded"`
}

type serverJSON struct {
	ID         string    `json:"id"`
	Host       string    `json:"host"`
	Version    string    `json:"version,omitempty"`
	Role       string    `json:"role,omitempty"`
	StartedAt  timestamp `json:"startedAt"`
	BeatAt     timestamp `json:"beatAt"`
	Deliveries int       `json:"deliveries"`
}

type strandedJSON struct {
	RunID    entities.RunID   `json:"runId"`
	Project  entities.Project `json:"project"`
	Workflow string           `json:"workflow"`
	Reason   string           `json:"reason"`
	Since    timestamp        `json:"since"`
	Wakes    int              `json:"wakes"`
}

// listServers answers with the processes that deliver, and with the stranded runs of all projects.
func (s *Server) listServers(c echo.Context) error {
	r := s.request(c)
	r.requireOperator()
	return answer(r, http.StatusOK, newServersJSON, func() (cluster.Servers, error) {
		return cluster.ListServers(r.ctx(), s.Reader)
	})
}

func newServersJSON(s cluster.Servers) serversJSON {
	v := serversJSON{
		At: timestamp(s.Now), Servers: []serverJSON{}, Extended: s.Extended, Capped: s.Capped,
		Stranded: []strandedJSON{}, More: s.MoreStranded,
	}
	for _, p := range s.List {
		v.Servers = append(v.Servers, serverJSON{
			p.ID, p.Host, p.Version, p.Role, timestamp(p.StartedAt), timestamp(p.BeatAt), p.Deliveries,
		})
	}
	for _, run := range s.Stranded {
		v.Stranded = append(v.Stranded, strandedJSON{
			run.ID, run.Project, run.WorkflowName, run.Reason, timestamp(run.StrandedAt), run.Repairs,
		})
	}
	return v
}
