package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// key is the JSON form of an API key. Its text comes once, when it is made.
type key struct {
	ID         admin.KeyID      `json:"id"`
	Project    entities.Project `json:"project"`
	Name       string           `json:"name"`
	Role       admin.Role       `json:"role"`
	Prefix     string           `json:"prefix"`
	CreatedAt  timestamp        `json:"createdAt"`
	ExpiresAt  *timestamp       `json:"expiresAt,omitempty"`
	RevokedAt  *timestamp       `json:"revokedAt,omitempty"`
	LastUsedAt *timestamp       `json:"lastUsedAt,omitempty"`
}

func newKey(k admin.Key) key {
	return key{
		k.ID, k.Project, k.Name, k.Role, k.Prefix, timestamp(k.CreatedAt), optionalTime(k.ExpiresAt),
		optionalTime(k.RevokedAt), optionalTime(k.LastUsedAt),
	}
}

// projectOr is the project that a request names, or else that of its key. Only operators may name another one.
func projectOr(c echo.Context, name string) (entities.Project, error) {
	named, own := entities.Project(name), auth.Project(c)
	if name == "" || named == own {
		return own, nil
	}
	if !auth.Of(c).Operator() {
		return "", auth.ErrNotOperator
	}
	return named, entities.ValidateID("project", name)
}

// projectParam is the project of the query.
func projectParam(c echo.Context) (entities.Project, error) {
	p, err := projectOr(c, c.QueryParam("project"))
	return p, inParam("project", err)
}

// listKeys answers with a project's keys, also those that are good no more.
func (s *Server) listKeys(c echo.Context) error {
	return listOfProject(s, c, admin.ListKeys, newKey)
}

// listOfProject answers with a page of what belongs to the project of the query, the newest first.
func listOfProject[R, T any](
	s *Server, c echo.Context,
	list func(context.Context, pg.Querier, entities.Project, pg.Page) ([]R, string, error), show func(R) T,
) error {
	project, err := projectParam(c)
	if err != nil {
		return err
	}
	p, err := page(c, newestFirst)
	if err != nil {
		return err
	}
	rows, next, err := list(c.Request().Context(), s.Reader, project, p)
	if err != nil {
		return err
	}
	return answerList(c, rows, next, show)
}

// createKey makes a key. Its text is in this answer and nowhere else.
func (s *Server) createKey(c echo.Context) error {
	var body struct {
		Name      string     `json:"name"`
		Role      admin.Role `json:"role"`
		Project   string     `json:"project"`
		ExpiresAt instant    `json:"expiresAt"`
	}
	if err := readBody(c, &body); err != nil {
		return err
	}
	project, err := projectOr(c, body.Project)
	if err != nil {
		return inField("project", err)
	}
	k := admin.Key{Project: project, Name: body.Name, Role: body.Role}
	if at := time.Time(body.ExpiresAt); !at.IsZero() {
		k.ExpiresAt = &at
	}
	made, text, err := s.Keys.Mint(c.Request().Context(), k)
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
	c.Response().Header().Set(echo.HeaderLocation, "/v1/keys/"+string(made.ID))
	return c.JSON(http.StatusCreated, struct {
		key

		Key string `json:"key"`
	}{newKey(made), text})
}

func (s *Server) getKey(c echo.Context) error {
	project, id, err := theKey(c)
	if err != nil {
		return err
	}
	k, err := admin.KeyByID(c.Request().Context(), s.Reader, project, id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, newKey(k))
}

// revokeKey ends a key for good. It stays in lists, as the audit names it.
func (s *Server) revokeKey(c echo.Context) error {
	project, id, err := theKey(c)
	if err != nil {
		return err
	}
	if err := s.Keys.Revoke(c.Request().Context(), project, id); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// theKey is the one that the path names, and the project it is looked for in.
func theKey(c echo.Context) (entities.Project, admin.KeyID, error) {
	project, err := projectParam(c)
	if err != nil {
		return "", "", err
	}
	id, err := pathParam(c, "id", "key ID")
	return project, admin.KeyID(id), err
}

// project is the JSON form of a project.
type project struct {
	Name      entities.Project `json:"name"`
	CreatedAt timestamp        `json:"createdAt"`
}

func newProject(p admin.ListedProject) project { return project{p.Name, timestamp(p.CreatedAt)} }

func (s *Server) listProjects(c echo.Context) error {
	if !auth.Of(c).Operator() {
		return auth.ErrNotOperator
	}
	all, err := admin.ListProjects(c.Request().Context(), s.Reader)
	if err != nil {
		return err
	}
	return answerList(c, all, "", newProject)
}

// putProject makes a project, unless it exists.
func (s *Server) putProject(c echo.Context) error {
	if !auth.Of(c).Operator() {
		return auth.ErrNotOperator
	}
	name, err := pathParam(c, "name", "project")
	if err != nil {
		return err
	}
	if err := readOptionalBody(c, &struct{}{}); err != nil {
		return err
	}
	p, err := s.Projects.Put(c.Request().Context(), entities.Project(name))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, newProject(p))
}

// action is the JSON form of what the audit tells of.
type action struct {
	Seq     int64            `json:"seq"`
	At      timestamp        `json:"at"`
	Project entities.Project `json:"project"`
	Actor   admin.Actor      `json:"actor"`
	Action  admin.ActionKind `json:"action"`
	Subject string           `json:"subject"`
	Detail  json.RawMessage  `json:"detail"`
}

func newAction(a admin.Action) action {
	return action{a.Seq, timestamp(a.At), a.Project, a.Actor, a.Action, a.Subject, a.Detail}
}

// listAudit answers with what was done in a project.
func (s *Server) listAudit(c echo.Context) error {
	return listOfProject(s, c, admin.ListActions, newAction)
}
