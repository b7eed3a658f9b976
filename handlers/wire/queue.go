package wire

import (
	"bytes"
	"cmp"
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
)

const (
	defaultContentType = "application/octet-stream"
	defaultVisibility  = 5 * time.Minute
)

// workflowTopic matches the SDK's topics (§5.3). An app has no route for messages of other topics.
var workflowTopic = regexp.MustCompile(`^__(?:[A-Za-z0-9-]+_)?wkf_(?:workflow|step)_[A-Za-z0-9_-]+$`)

// sendMessage is endpoint 17: it enqueues a message. The body is opaque.
func (s *Server) sendMessage(r *request) error {
	to, err := r.address()
	if err != nil {
		return err
	}
	m, err := to.message(r.Request().Header, r.Request().Body)
	if err != nil {
		return err
	}
	if err := s.checkQuota(r, m); err != nil {
		return err
	}
	id, err := s.Queue.Send(r.ctx(), m)
	if err != nil {
		return err
	}
	return r.JSON(http.StatusCreated, map[string]string{"messageId": id})
}

// checkQuota refuses the first message of a run that its project may not start.
func (s *Server) checkQuota(r *request, messages ...message.Message) error {
	for _, m := range messages {
		if m.RunID == "" {
			continue
		}
		if err := s.Log.CheckMessage(r.ctx(), m.Project, m.RunID); err != nil {
			return err
		}
	}
	return nil
}

// maxMessages limits the messages of one batch (§5.1b).
const maxMessages = 100

// sendMessages is endpoint 17b: it enqueues every part of a multipart body as a message, all of them or none.
func (s *Server) sendMessages(r *request) error {
	to, err := r.address()
	if err != nil {
		return err
	}
	messages, err := to.messages(r.Request())
	if err != nil {
		return err
	}
	if err := s.checkQuota(r, messages...); err != nil {
		return err
	}
	ids, err := s.Queue.SendAll(r.ctx(), messages)
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
	return r.JSON(http.StatusOK, map[string][]sent{"results": results})
}

// address is the destination of the messages of a request.
type address struct {
	project    entities.Project
	topic      string
	deployment string
}

// address returns the destination of the messages of the request.
func (r *request) address() (address, error) {
	to := address{r.project(), r.param("topic"), r.Request().Header.Get("Vqs-Deployment-Id")}
	r.fail(to.check("Vqs-Deployment-Id"))
	return to, r.err
}

// check checks the topic and the deployment, which the client names so.
func (to address) check(name string) error {
	if !workflowTopic.MatchString(to.topic) {
		return entities.Invalid("topic %q does not belong to a workflow or step", to.topic)
	}
	if to.deployment == "" {
		return entities.Invalid("%s is missing: set STEPWELL_DEPLOYMENT_ID in the app, and do not run it"+
			" with NODE_ENV=development", name)
	}
	return entities.ValidateID(name, to.deployment)
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
	contentType := cmp.Or(h.Get(echo.HeaderContentType), defaultContentType)
	if err := checkText(echo.HeaderContentType, contentType); err != nil {
		return message.Message{}, err
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return message.Message{}, fmt.Errorf("read body: %w", err)
	}
	return message.Message{
		Project: to.project, Topic: to.topic, DeploymentID: to.deployment,
		RunID:       entities.RunID(h.Get("X-Vercel-Workflow-Run-Id")),
		ContentType: contentType, Body: data, Key: h.Get("Vqs-Idempotency-Key"),
		Delay: delay, Retention: retention, BeginsRun: message.Begins(to.topic, data),
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
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge || errors.Is(err, entities.ErrInvalid) {
		return err
	}
	return entities.Invalid("part %d of the batch: %v", part, err)
}

// seconds parses a header in seconds, or returns 0 if it is missing.
func seconds(h http.Header, name string) (time.Duration, error) {
	return wholeUnits(name, h.Get(name), time.Second, "seconds")
}

// acknowledge is the DELETE of endpoint 18: it deletes a leased message.
func (s *Server) acknowledge(r *request) error {
	topic, receipt := r.param("topic"), r.param("receipt")
	if r.err != nil {
		return r.err
	}
	if err := s.Queue.Acknowledge(r.ctx(), r.project(), topic, receipt); err != nil {
		return err
	}
	return r.NoContent(http.StatusNoContent)
}

// setVisibility is the PATCH of endpoint 18: a long timeout extends the lease, a short one releases the message. The
// client of @stepwell/world says instead that it works on the message.
func (s *Server) setVisibility(r *request) error {
	topic, receipt := r.param("topic"), r.param("receipt")
	if r.err != nil {
		return r.err
	}
	var body struct {
		Seconds *int64 `json:"visibilityTimeoutSeconds"`
		Working bool   `json:"working"`
	}
	err := json.NewDecoder(r.Request().Body).Decode(&body)
	if err != nil || body.Seconds == nil && !body.Working {
		return entities.Invalid(`the body is neither {"visibilityTimeoutSeconds": seconds} nor {"working": true}`)
	}
	if body.Working {
		if err := s.Queue.KeepLease(r.ctx(), r.project(), topic, receipt); err != nil {
			return err
		}
		return r.NoContent(http.StatusNoContent)
	}
	const most = int64(24 * 60 * 60) // prevents overflow below; the queue has its own limits
	d := time.Duration(max(-1, min(*body.Seconds, most))) * time.Second
	if err := s.Queue.SetVisibility(r.ctx(), r.project(), topic, receipt, d); err != nil {
		return err
	}
	return r.NoContent(http.StatusNoContent)
}

// receiveMessage is endpoint 19: it leases a message and sends it as the only part of a multipart body.
func (s *Server) receiveMessage(r *request) error {
	topic, id := r.param("topic"), r.param("messageId")
	lease, err := seconds(r.Request().Header, "Vqs-Visibility-Timeout-Seconds")
	r.fail(err)
	if r.err != nil {
		return r.err
	}
	m, err := s.Queue.Receive(r.ctx(), r.project(), topic, id, cmp.Or(lease, defaultVisibility))
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
	return r.Blob(http.StatusOK, "multipart/mixed; boundary="+parts.Boundary(), body.Bytes())
}
