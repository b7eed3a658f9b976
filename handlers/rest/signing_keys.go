package rest

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// signingKey is the JSON form of a signing key.
type signingKey struct {
	ID        string    `json:"id"`
	CreatedAt timestamp `json:"createdAt"`
	// Secret is shown once, when the key is made.
	Secret string `json:"secret,omitempty"`
}

func newSigningKey(k admin.SigningKey) signingKey {
	return signingKey{ID: k.ID, CreatedAt: timestamp(k.CreatedAt)}
}

func (s *Server) listSigningKeys(c echo.Context) error {
	all, err := s.SigningKeys.List(c.Request().Context(), auth.Project(c))
	if err != nil {
		return err
	}
	return answerList(c, all, "", newSigningKey)
}

func (s *Server) createSigningKey(c echo.Context) error {
	key, secret, err := s.SigningKeys.Create(c.Request().Context(), auth.Project(c))
	if err != nil {
		return err
	}
	shown := newSigningKey(key)
	shown.Secret = secret.Reveal()
	c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
	return c.JSON(http.StatusCreated, shown)
}

func (s *Server) deleteSigningKey(c echo.Context) error {
	id, err := pathParam(c, "id", "signing key ID")
	if err != nil {
		return err
	}
	if err := s.SigningKeys.Delete(c.Request().Context(), auth.Project(c), id); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
