package rest

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// secret is the JSON form of a secret, which never has its values.
type secret struct {
	Name      string    `json:"name"`
	CreatedAt timestamp `json:"createdAt"`
	UpdatedAt timestamp `json:"updatedAt"`
}

func newSecret(s admin.Secret) secret {
	return secret{s.Name, timestamp(s.CreatedAt), timestamp(s.UpdatedAt)}
}

func (s *Server) listSecrets(c echo.Context) error {
	all, err := s.Secrets.List(c.Request().Context(), auth.Project(c))
	if err != nil {
		return err
	}
	return answerList(c, all, "", newSecret)
}

// putSecret writes a secret, whose values replace those it had.
func (s *Server) putSecret(c echo.Context) error {
	name, err := pathParam(c, "name", "secret name")
	if err != nil {
		return err
	}
	var body struct {
		Values []string `json:"values"`
	}
	if err := readBody(c, &body); err != nil {
		return err
	}
	values := make([]admin.SecretValue, len(body.Values))
	for i, v := range body.Values {
		values[i] = admin.SecretValue(v)
	}
	v, err := s.Secrets.Put(c.Request().Context(), auth.Project(c), name, values)
	if err != nil {
		return inField("values", err)
	}
	return c.JSON(http.StatusOK, newSecret(v))
}

func (s *Server) removeSecret(c echo.Context) error {
	name, err := pathParam(c, "name", "secret name")
	if err != nil {
		return err
	}
	if err := s.Secrets.Delete(c.Request().Context(), auth.Project(c), name); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
