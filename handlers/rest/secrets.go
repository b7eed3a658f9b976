package rest

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities/admin"
)

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
