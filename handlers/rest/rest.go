// Package rest serves Stepwell's own API below /v1: JSON in camelCase.
//
// It imports packages entities, eventlog, queue and handlers/auth.
package rest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/queue"
)

// Server answers the native API.
type Server struct {
	Log   *eventlog.Log
	Queue *queue.Queue
}

// Register adds the endpoints below the group, which must authenticate.
func (s *Server) Register(g *echo.Group) {
	g.GET("/runs/:id/events", s.listEvents)

	g.GET("/deployments", s.listDeployments)
	g.PUT("/deployments/:id", s.putDeployment)
	g.DELETE("/deployments/:id", s.removeDeployment)

	g.GET("/messages", s.listMessages)
	g.POST("/messages/:id/retry", s.retryMessage)
	g.DELETE("/messages/:id", s.discardMessage)
}

// idParam is the path's ID, decoded: echo hands it out encoded when the path was encoded in any way but
// the usual.
func idParam(c echo.Context, what string) (string, error) {
	id := c.Param("id")
	if c.Request().URL.RawPath != "" {
		decoded, err := url.PathUnescape(id)
		if err != nil {
			return "", entities.Invalid("path: the %s is not URL-encoded as it should be", what)
		}
		id = decoded
	}
	return id, entities.ValidateID(what, id)
}

// deployment is the JSON form of a deployment.
type deployment struct {
	ID        string    `json:"id"`
	URL       string    `json:"url"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

func (s *Server) listDeployments(c echo.Context) error {
	list, err := s.Queue.Deployments(c.Request().Context(), auth.Project(c))
	if err != nil {
		return err
	}
	body := struct {
		Data []deployment `json:"data"`
	}{Data: make([]deployment, len(list))}
	for i, d := range list {
		body.Data[i] = deployment(d)
	}
	return c.JSON(http.StatusOK, body)
}

// putDeployment registers a deployment, or moves it: {"url": "http://host:port"}.
func (s *Server) putDeployment(c echo.Context) error {
	id, err := idParam(c, "deployment ID")
	if err != nil {
		return err
	}
	var body struct {
		URL string `json:"url"`
	}
	data, err := io.ReadAll(c.Request().Body)
	if err != nil {
		return fmt.Errorf("read body: %w", err)
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return entities.Invalid(`the body is not {"url": "http://host:port"}`)
	}
	d, err := s.Queue.PutDeployment(c.Request().Context(), auth.Project(c), id, body.URL)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, deployment(d))
}

func (s *Server) removeDeployment(c echo.Context) error {
	id, err := idParam(c, "deployment ID")
	if err != nil {
		return err
	}
	if err := s.Queue.RemoveDeployment(c.Request().Context(), auth.Project(c), id); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
