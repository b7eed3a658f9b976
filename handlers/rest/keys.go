package rest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// describeClient answers with what the client's key may do.
func (s *Server) describeClient(r *request) error {
	i := auth.IdentityOf(r)
	return r.JSON(http.StatusOK, api.Client{
		Project: string(i.Project), Role: api.Role(i.Role), Actor: string(i.Actor), Operator: i.Operator(),
		KeyName: i.Key().Name, ExpiresAt: optionalTime(i.Key().ExpiresAt), Version: s.Version, Cell: string(s.Cell),
	})
}

// newKeyJSON encodes an API key, without the key itself.
func newKeyJSON(k admin.Key) api.Key {
	return api.Key{
		ID: string(k.ID), Project: string(k.Project), Name: k.Name, Role: api.Role(k.Role), Deployments: k.Deployments,
		Prefix: k.Prefix, Person: k.Person, CreatedAt: timestamp(k.CreatedAt), ExpiresAt: optionalTime(k.ExpiresAt),
		RevokedAt: optionalTime(k.RevokedAt), LastUsedAt: optionalTime(k.LastUsedAt),
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
	var body api.CreateKeyBody
	r.body(&body)
	project, err := r.projectOr(body.Project)
	r.fail(inField("project", err))
	k := admin.Key{Project: project, Name: body.Name, Role: admin.Role(body.Role), Deployments: body.Deployments}
	if at := body.ExpiresAt.Time; !at.IsZero() {
		k.ExpiresAt = &at
	}
	r.setCreatedSecret()
	return answer(r, func() (api.MadeKey, error) {
		created, text, err := s.Keys.Mint(r.ctx(), k)
		if err != nil {
			return api.MadeKey{}, err
		}
		r.setCreatedAt("/v1/keys/" + string(created.ID))
		return api.MadeKey{
			ID: string(created.ID), Project: string(created.Project), Name: created.Name, Role: api.Role(created.Role),
			Deployments: created.Deployments, Prefix: created.Prefix, CreatedAt: timestamp(created.CreatedAt),
			ExpiresAt: optionalTime(created.ExpiresAt), Key: text,
		}, nil
	})
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

func newProjectJSON(p admin.ListedProject) api.Project {
	j := api.Project{Name: string(p.Name), CreatedAt: timestamp(p.CreatedAt), PausedAt: optionalTime(p.PausedAt)}
	if !p.Equal(admin.Limits{}) {
		j.Limits = &api.ProjectLimits{
			DailyStarts: p.DailyStarts, StartsToday: p.StartsToday, StorageBytes: p.StorageBytes, StoredBytes: p.StoredBytes,
			StoredAt: optionalTime(p.StoredAt), MaxDepth: p.MaxDepth, MaxDescendants: p.MaxDescendants,
		}
	}
	if p.EncryptedSince != nil {
		j.Encryption = api.ProjectEncryption{
			Since: timestamp(*p.EncryptedSince), KeyMadeAt: optionalTime(p.KeyMadeAt),
			RunKeys:   p.RunKeys != nil && *p.RunKeys,
			MasterKey: *cmp.Or(p.MasterKey, new(string)), DataKeys: int64(p.DataKeys), DestroyedKeys: int64(p.DestroyedKeys),
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

// projectBody is the body of a request that creates a project, sets its limits, changes its keys, pauses or resumes it.
type projectBody struct {
	Paused     *bool             `json:"paused"`
	Encryption encryption.Change `json:"encryption"`
	Limits     struct {
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
		if err == nil && body.Encryption != "" {
			if err = s.Encryption.Apply(r.ctx(), name, body.Encryption); err == nil {
				p, err = admin.ProjectByName(r.ctx(), s.Reader, name, s.Log.Now())
			}
		}
		if err != nil || body.Paused == nil {
			return p, err
		}
		if p, err = s.Projects.SetPaused(r.ctx(), name, *body.Paused); err == nil && !*body.Paused {
			err = s.Queue.Resume(r.ctx(), name)
		}
		return p, err
	})
}

// shredRun destroys the key of an ended run.
func (s *Server) shredRun(r *request) error {
	id := r.runID()
	return answerNothing(r, func() error {
		err := s.Maintainer.Shred(r.ctx(), r.project(), id, queue.DeleteRunMessages)
		if err == nil {
			s.Encryption.Forget(id)
			s.Log.Forget(id)
		}
		return err
	})
}

func newActionJSON(a admin.Action) api.Action {
	return api.Action{
		Seq: a.Seq, At: timestamp(a.At), Project: string(a.Project), Actor: string(a.Actor), Address: a.Address,
		Action: string(a.Action), Subject: a.Subject, Detail: a.Detail,
	}
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

// newSecretJSON encodes a secret, without its values.
func newSecretJSON(s admin.Secret) api.Secret {
	return api.Secret{
		Name: s.Name, CreatedAt: timestamp(s.CreatedAt), UpdatedAt: timestamp(s.UpdatedAt), Origins: s.Origins,
	}
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

func newSigningKeyJSON(k admin.SigningKey) api.SigningKey {
	return api.SigningKey{ID: k.ID, CreatedAt: timestamp(k.CreatedAt)}
}

func (s *Server) listSigningKeys(r *request) error {
	return answerAll(r, newSigningKeyJSON, s.SigningKeys.List)
}

func (s *Server) createSigningKey(r *request) error {
	r.setCreatedSecret()
	return answer(r, func() (api.MadeSigningKey, error) {
		key, secret, err := s.SigningKeys.Create(r.ctx(), r.project())
		return api.MadeSigningKey{ID: key.ID, CreatedAt: timestamp(key.CreatedAt), Secret: secret.Reveal()}, err
	})
}

func (s *Server) deleteSigningKey(r *request) error {
	return deleteOne(r, r.pathID("id", "signing key ID"), s.SigningKeys.Delete)
}

// listSessions lists the sessions of the dashboard that have opened the project.
func (s *Server) listSessions(r *request) error {
	page := r.page(oldestFirst)
	cookie := auth.CookieOf(r.Request())
	encode := func(o admin.OpenSession) api.Session {
		role := o.Role
		if o.KeyID == "" {
			role = admin.RoleAdmin // of the key in the environment
		}
		return api.Session{
			ID: o.ID.String(), KeyID: string(o.KeyID), KeyName: o.KeyName, Role: api.Role(role),
			CreatedAt: timestamp(o.CreatedAt), UsedAt: timestamp(o.UsedAt),
			Current: cookie != "" && o.ID == s.Sessions.ID(cookie),
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
	var answer api.SignInCode
	if i.Actor != admin.ActorOpen {
		code, err := s.Sessions.Code(r.Request().Context(), opened)
		if err != nil {
			return err
		}
		expires := s.Log.Now().Add(access.CodeTime)
		answer.Code, answer.ExpiresAt = code, optionalTime(&expires)
	}
	r.setCreatedSecret()
	return r.JSON(http.StatusCreated, answer)
}

// errCodeOfBrowser is an [auth.ErrForbidden].
var errCodeOfBrowser = fmt.Errorf("%w: a session makes no codes: use /v1 with a key", auth.ErrForbidden)

// listServers answers with the processes that deliver, and with the stranded runs of all projects.
func (s *Server) listServers(r *request) error {
	r.requireOperator()
	return answerAs(r, newServersJSON, func() (cluster.Servers, error) {
		return cluster.ListServers(r.ctx(), s.Reader)
	})
}

func newServersJSON(s cluster.Servers) api.Servers {
	return api.Servers{
		At: timestamp(s.Now), Servers: encodeAll(s.List, newServerJSON), Extended: int64(s.Extended), Capped: s.Capped,
		Stranded: encodeAll(s.Stranded, newStrandedJSON), MoreStranded: s.MoreStranded,
	}
}

func newServerJSON(p cluster.Server) api.ServerProcess {
	return api.ServerProcess{
		ID: p.ID, Host: p.Host, Version: p.Version, Commit: p.Commit, Role: p.Role, StartedAt: timestamp(p.StartedAt),
		BeatAt: timestamp(p.BeatAt), Deliveries: int64(p.Deliveries),
	}
}

func newStrandedJSON(r cluster.StrandedRun) api.StrandedRun {
	return api.StrandedRun{
		RunID: string(r.ID), Project: string(r.Project), Workflow: r.WorkflowName, Reason: r.Reason,
		Since: timestamp(r.StrandedAt), Wakes: int64(r.Repairs),
	}
}
