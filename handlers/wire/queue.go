package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"regexp"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

const (
	defaultContentType = "application/octet-stream"
	defaultVisibility  = 5 * time.Minute
)

// workflowTopic is what the SDK's topics look like (§5.3); messages of others have no route in an app.
var workflowTopic = regexp.MustCompile(`^__(?:[A-Za-z0-9-]+_)?wkf_(?:workflow|step)_[A-Za-z0-9_-]+$`)

// sendMessage is endpoint 17. The body is kept as it comes, whatever it is.
func (s *Server) sendMessage(c echo.Context) error {
	m, err := newMessage(c)
	if err != nil {
		return err
	}
	id, err := s.Queue.Send(c.Request().Context(), m)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, map[string]string{"messageId": id})
}

func newMessage(c echo.Context) (entities.Message, error) {
	h := c.Request().Header
	topic, err := param(c, "topic")
	if err != nil {
		return entities.Message{}, err
	}
	if !workflowTopic.MatchString(topic) {
		return entities.Message{}, entities.Invalid("topic %q is not that of a workflow or step", topic)
	}
	delay, err := seconds(h, "Vqs-Delay-Seconds")
	if err != nil {
		return entities.Message{}, err
	}
	retention, err := seconds(h, "Vqs-Retention-Seconds")
	if err != nil {
		return entities.Message{}, err
	}
	deployment := h.Get("Vqs-Deployment-Id")
	if deployment == "" {
		return entities.Message{}, entities.Invalid(
			"Vqs-Deployment-Id is missing: set STEPWELL_DEPLOYMENT_ID in the app, and do not run it with NODE_ENV=development")
	}
	if err := entities.ValidateID("Vqs-Deployment-Id", deployment); err != nil {
		return entities.Message{}, err
	}
	contentType, err := clean(echo.HeaderContentType, h.Get(echo.HeaderContentType))
	if err != nil {
		return entities.Message{}, err
	}
	if contentType == "" {
		contentType = defaultContentType
	}
	body, err := io.ReadAll(c.Request().Body)
	if err != nil {
		return entities.Message{}, fmt.Errorf("read body: %w", err)
	}
	return entities.Message{
		Project: auth.Project(c), Topic: topic, DeploymentID: deployment,
		RunID:       entities.RunID(h.Get("X-Vercel-Workflow-Run-Id")),
		ContentType: contentType, Body: body, Key: h.Get("Vqs-Idempotency-Key"),
		Delay: delay, Retention: retention,
	}, nil
}

// seconds reads a header that counts seconds; 0 when it is missing.
func seconds(h http.Header, name string) (time.Duration, error) {
	value := h.Get(name)
	if value == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return 0, entities.Invalid("%s: %q is not a whole number of seconds", name, value)
	}
	return time.Duration(n) * time.Second, nil
}

// acknowledge is the DELETE of endpoint 18.
func (s *Server) acknowledge(c echo.Context) error {
	topic, receipt, err := leaseParams(c)
	if err != nil {
		return err
	}
	if err := s.Queue.Acknowledge(c.Request().Context(), auth.Project(c), topic, receipt); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// setVisibility is the PATCH of endpoint 18: far away to keep the message, near to give it back.
func (s *Server) setVisibility(c echo.Context) error {
	topic, receipt, err := leaseParams(c)
	if err != nil {
		return err
	}
	var body struct {
		Seconds *int64 `json:"visibilityTimeoutSeconds"`
	}
	if err := json.NewDecoder(c.Request().Body).Decode(&body); err != nil || body.Seconds == nil {
		return entities.Invalid(`the body is not {"visibilityTimeoutSeconds": seconds}`)
	}
	const most = int64(24 * 60 * 60) // keeps the multiplication from overflowing; the queue has its own limits
	d := time.Duration(max(-1, min(*body.Seconds, most))) * time.Second
	if err := s.Queue.SetVisibility(c.Request().Context(), auth.Project(c), topic, receipt, d); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

func leaseParams(c echo.Context) (topic, receipt string, err error) {
	if topic, err = param(c, "topic"); err != nil {
		return "", "", err
	}
	receipt, err = param(c, "receipt")
	return topic, receipt, err
}

// receiveMessage is endpoint 19: the one message, as the one part of a multipart body.
func (s *Server) receiveMessage(c echo.Context) error {
	topic, err := param(c, "topic")
	if err != nil {
		return err
	}
	id, err := param(c, "messageId")
	if err != nil {
		return err
	}
	lease, err := seconds(c.Request().Header, "Vqs-Visibility-Timeout-Seconds")
	if err != nil {
		return err
	}
	if lease == 0 {
		lease = defaultVisibility
	}
	m, err := s.Queue.Receive(c.Request().Context(), auth.Project(c), topic, id, lease)
	if err != nil {
		return err
	}
	var body bytes.Buffer
	parts := multipart.NewWriter(&body)
	part, err := parts.CreatePart(textproto.MIMEHeader{
		"Content-Type":       {m.ContentType},
		"Vqs-Message-Id":     {m.ID},
		"Vqs-Delivery-Count": {strconv.Itoa(m.DeliveryCount)},
		"Vqs-Timestamp":      {m.CreatedAt.UTC().Format(time.RFC3339Nano)},
		"Vqs-Expires-At":     {m.ExpiresAt.UTC().Format(time.RFC3339Nano)},
		"Vqs-Receipt-Handle": {m.Lease},
	})
	if err == nil {
		_, err = part.Write(m.Body)
	}
	if err == nil {
		err = parts.Close()
	}
	if err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	return c.Blob(http.StatusOK, "multipart/mixed; boundary="+parts.Boundary(), body.Bytes())
}
