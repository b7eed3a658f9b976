package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

const (
	defaultContentType = "application/octet-stream"
	defaultVisibility  = 5 * time.Minute
)

// workflowTopic matches the SDK's topics (§5.3). An app has no route for messages of other topics.
var workflowTopic = regexp.MustCompile(`^__(?:[A-Za-z0-9-]+_)?wkf_(?:workflow|step)_[A-Za-z0-9_-]+$`)

// sendMessage is endpoint 17: it enqueues a message. The body is opaque.
func (s *Server) sendMessage(c echo.Context) error {
	to, err := newAddress(c)
	if err != nil {
		return err
	}
	m, err := to.message(c.Request().Header, c.Request().Body)
	if err != nil {
		return err
	}
	if err := s.checkQuota(c.Request().Context(), m); err != nil {
		return err
	}
	id, err := s.Queue.Send(c.Request().Context(), m)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, map[string]string{"messageId": id})
}

// checkQuota refuses the first message of a run that its project may not start.
func (s *Server) checkQuota(ctx context.Context, messages ...message.Message) error {
	for _, m := range messages {
		if m.RunID == "" {
			continue
		}
		if err := s.Log.CheckMessage(ctx, m.Project, m.RunID); err != nil {
			return err
		}
	}
	return nil
}

// maxMessages limits the messages of one batch (§5.1b).
const maxMessages = 100

// sendMessages is endpoint 17b: it enqueues every part of a multipart body as a message, all of them or none.
func (s *Server) sendMessages(c echo.Context) error {
	to, err := newAddress(c)
	if err != nil {
		return err
	}
	messages, err := to.messages(c.Request())
	if err != nil {
		return err
	}
	if err := s.checkQuota(c.Request().Context(), messages...); err != nil {
		return err
	}
	ids, err := s.Queue.SendAll(c.Request().Context(), messages)
	if err != nil {
		return err
	}
	type sent struct {
		Status    string `json:"status"`
		MessageID string `json:"messageId"`
	}
	results := make([]sent, len(ids))
	for i, id := range ids {
		results[i] = sent{"sent", id}
	}
	return c.JSON(http.StatusOK, map[string][]sent{"results": results})
}

// address is the destination of the messages of a request.
type address struct {
	project    entities.Project
	topic      string
	deployment string
}

func newAddress(c echo.Context) (address, error) {
	to := address{project: auth.Project(c), deployment: c.Request().Header.Get("Vqs-Deployment-Id")}
	var err error
	if to.topic, err = param(c, "topic"); err != nil {
		return to, err
	}
	if !workflowTopic.MatchString(to.topic) {
		return to, entities.Invalid("topic %q does not belong to a workflow or step", to.topic)
	}
	if to.deployment == "" {
		return to, entities.Invalid(
			"Vqs-Deployment-Id is missing: set STEPWELL_DEPLOYMENT_ID in the app, and do not run it with NODE_ENV=development")
	}
	return to, entities.ValidateID("Vqs-Deployment-Id", to.deployment)
}

// message reads one message from its headers and body.
func (to address) message(h http.Header, body io.Reader) (message.Message, error) {
	delay, err := seconds(h, "Vqs-Delay-Seconds")
	if err != nil {
		return message.Message{}, err
	}
	retention, err := seconds(h, "Vqs-Retention-Seconds")
	if err != nil {
		return message.Message{}, err
	}
	contentType, err := clean(echo.HeaderContentType, h.Get(echo.HeaderContentType))
	if err != nil {
		return message.Message{}, err
	}
	if contentType == "" {
		contentType = defaultContentType
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return message.Message{}, fmt.Errorf("read body: %w", err)
	}
	return message.Message{
		Project: to.project, Topic: to.topic, DeploymentID: to.deployment,
		RunID:       entities.RunID(h.Get("X-Vercel-Workflow-Run-Id")),
		ContentType: contentType, Body: data, Key: h.Get("Vqs-Idempotency-Key"),
		Delay: delay, Retention: retention,
	}, nil
}

// messages reads a multipart body whose parts are messages.
func (to address) messages(r *http.Request) ([]message.Message, error) {
	// Clients may omit the line end after the last delimiter, without which unended would report an error.
	r.Body = io.NopCloser(unended{io.MultiReader(r.Body, strings.NewReader("\r\n"))})
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, entities.Invalid("the body is not multipart: %v", err)
	}
	var messages []message.Message
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) { // after the last delimiter
			break
		}
		if err != nil {
			return nil, badPart(err, len(messages))
		}
		if len(messages) == maxMessages {
			return nil, entities.Invalid("the batch has more than %d messages", maxMessages)
		}
		m, err := to.message(http.Header(part.Header), part)
		if err != nil {
			return nil, badPart(err, len(messages))
		}
		messages = append(messages, m)
	}
	if len(messages) == 0 {
		return nil, entities.Invalid("the batch has no messages")
	}
	return messages, nil
}

// unended turns the end of a body into an error. Package multipart would otherwise accept a truncated body.
type unended struct{ io.Reader }

func (u unended) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// badPart translates an error of reading a part: the body is too large, or it is not valid multipart.
func badPart(err error, part int) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) || errors.Is(err, entities.ErrInvalid) {
		return err
	}
	return entities.Invalid("part %d of the batch: %v", part, err)
}

// seconds parses a header in seconds, or returns 0 if it is missing.
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

// acknowledge is the DELETE of endpoint 18: it deletes a leased message.
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

// setVisibility is the PATCH of endpoint 18: a long timeout extends the lease, a short one releases the message.
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
	const most = int64(24 * 60 * 60) // prevents overflow below; the queue has its own limits
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

// receiveMessage is endpoint 19: it leases a message and sends it as the only part of a multipart body.
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
