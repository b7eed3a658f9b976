package rest

import (
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/queue"
)

// deployment is the JSON form of a deployment.
type deployment struct {
	ID        string    `json:"id"`
	URL       string    `json:"url"`
	Workflows []string  `json:"workflows,omitempty"`
	CreatedAt timestamp `json:"createdAt"`
	UpdatedAt timestamp `json:"updatedAt"`
}

func newDeployment(d queue.Deployment) deployment {
	return deployment{d.ID, d.URL, d.Workflows, timestamp(d.CreatedAt), timestamp(d.UpdatedAt)}
}

func (s *Server) listDeployments(c echo.Context) error {
	all, err := s.Queue.Deployments(c.Request().Context(), auth.Project(c))
	if err != nil {
		return err
	}
	return answerList(c, all, "", newDeployment)
}

func (s *Server) getDeployment(c echo.Context) error {
	id, err := pathParam(c, "id", "deployment ID")
	if err != nil {
		return err
	}
	d, err := s.Queue.Deployment(c.Request().Context(), auth.Project(c), id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, newDeployment(d))
}

// putDeployment registers a deployment, or moves it.
func (s *Server) putDeployment(c echo.Context) error {
	id, err := pathParam(c, "id", "deployment ID")
	if err != nil {
		return err
	}
	var body struct {
		URL       string   `json:"url"`
		Workflows []string `json:"workflows"`
	}
	if err := readBody(c, &body); err != nil {
		return err
	}
	if err := s.checkAddress(body.URL); err != nil {
		return err
	}
	d, err := s.Queue.PutDeployment(c.Request().Context(), auth.Project(c), id, body.URL, body.Workflows...)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, newDeployment(d))
}

// checkAddress refuses the URL whose host is an address that the server will not call. Names are not resolved: they may
// lead elsewhere by the time of a call, when they are looked at.
func (s *Server) checkAddress(where string) error {
	u, err := url.Parse(where)
	if err != nil {
		return nil //nolint:nilerr // the queue says what is wrong with it
	}
	if err := s.Allowed.CheckURL(u); err != nil {
		return badField("url", "%v", err)
	}
	return nil
}

func (s *Server) removeDeployment(c echo.Context) error {
	id, err := pathParam(c, "id", "deployment ID")
	if err != nil {
		return err
	}
	if err := s.Queue.RemoveDeployment(c.Request().Context(), auth.Project(c), id); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
