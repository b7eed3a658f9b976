package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/queue/world"
)

var (
	// ErrVersion refuses a version of the own client's protocol that the server does not speak.
	ErrVersion = errors.New("unsupported version")
	// ErrUnknownFrame refuses a commit with a frame of a kind that the server does not know.
	ErrUnknownFrame = errors.New("unknown frame")
)

// checkVersion fails with [ErrVersion] unless the server speaks the version of the own client.
func checkVersion(version string) error {
	if version == strconv.Itoa(world.Version) {
		return nil
	}
	return fmt.Errorf("this server speaks version %d of the World protocol, and the client %s: update the server, or "+
		"install the package that it serves: %w", world.Version, cmp.Or(version, "none"), ErrVersion)
}

// commit is a list of events and messages that are applied in their order (§11.1).
type commit struct {
	head  commitHead
	items []commitItem
	end   commitEnd
}

type commitHead struct {
	World  codec.Int `cbor:"world"`
	RunID  string    `cbor:"runId"`
	Repeat bool      `cbor:"repeat"`
}

// commitEnd is the end of a commit. It may also end a delivery: that of the answer, or that of the receipt.
type commitEnd struct {
	Ack        bool       `cbor:"ack"`
	RetryAfter *codec.Int `cbor:"retryAfter"`
	Reason     string     `cbor:"reason"`
	Topic      string     `cbor:"topic"`
	Receipt    string     `cbor:"receipt"`
	// Unreached says that nobody has looked at the message: the failure does not count.
	Unreached bool `cbor:"unreached"`
	// Postponed says that the app wants the message again after RetryAfter although it has not failed.
	Postponed bool `cbor:"postponed"`
}

// commitItem is an event or a message.
type commitItem struct {
	event *eventlog.Request
	meta  meta          // of the event
	with  read.Payloads // in the answer
	// message is set unless the item is an event.
	message *message.Message
	// id is that of the message, once it is stored.
	id string
	// refused is why the item cannot be applied, whatever the log has.
	refused error
}

// commitMessage is the metadata of a message. Delay and retention are in seconds.
type commitMessage struct {
	Topic        string    `cbor:"topic"`
	DeploymentID string    `cbor:"deploymentId"`
	ContentType  string    `cbor:"contentType"`
	RunID        string    `cbor:"runId"`
	Key          string    `cbor:"key"`
	Delay        codec.Int `cbor:"delay"`
	Retention    codec.Int `cbor:"retention"`
}

// maxItems limits the items of one commit.
const maxItems = 1000

// readCommit reads a commit, which must be complete.
func (s *Server) readCommit(body io.Reader, project entities.Project) (*commit, error) {
	var c *commit
	ended := false
	for frame, err := range codec.Frames(body) {
		if err != nil {
			return nil, err
		}
		if ended {
			return nil, malformed("bytes after the end of the commit")
		}
		var keys codec.Map
		if err := codec.Unmarshal(frame.Meta, &keys); err != nil {
			return nil, err
		}
		switch {
		case c == nil:
			if c, err = readHead(frame, keys); err != nil {
				return nil, err
			}
		case keys["_end"] != nil:
			ended = true
			if err := codec.Unmarshal(frame.Meta, &c.end); err != nil {
				return nil, err
			}
		case keys["eventType"] == nil && keys["topic"] == nil:
			return nil, fmt.Errorf("frame %d of the commit is neither an event nor a message nor the end: %w",
				len(c.items)+1, ErrUnknownFrame)
		case len(c.items) == maxItems:
			return nil, entities.Invalid("the commit has more than %d events and messages", maxItems)
		case keys["eventType"] != nil:
			c.items = append(c.items, c.head.readEvent(frame, s.fenceOfCommits()))
		default:
			c.items = append(c.items, s.readMessage(frame, project))
		}
	}
	if !ended {
		return nil, malformed("the commit has no end")
	}
	return c, c.check()
}

// malformed returns an error about a body that is not what it should be.
func malformed(reason string) error { return &codec.Error{Kind: codec.ErrMalformed, Reason: reason} }

// readHead reads the first frame of a commit.
func readHead(frame codec.Frame, keys codec.Map) (*commit, error) {
	if keys["world"] == nil {
		return nil, malformed("the commit does not begin with its head")
	}
	var c commit
	if err := codec.Unmarshal(frame.Meta, &c.head); err != nil {
		return nil, err
	}
	return &c, checkVersion(strconv.FormatInt(int64(c.head.World), 10))
}

// check checks that a commit with events names their run.
func (c *commit) check() error {
	for _, i := range c.items {
		if i.message == nil && c.head.RunID == "" {
			return malformed("the head of a commit with events has no runId")
		}
	}
	return nil
}

// readEvent reads an event of a commit. In a repeated commit, an event with a writeKey may be in the log already.
func (h commitHead) readEvent(frame codec.Frame, by fence) (i commitItem) {
	request, m, err := newRequest(entities.RunID(h.RunID), frame, by)
	if err == nil {
		i.with, err = m.check(request.Type)
	}
	var own struct {
		WriteKey string `cbor:"writeKey"`
	}
	if err == nil {
		err = codec.Unmarshal(frame.Meta, &own)
	}
	if err == nil && h.Repeat && own.WriteKey != "" && mayRepeat[request.Type] {
		request.Mark, err = markOf(own.WriteKey)
	}
	i.event, i.meta, i.refused = &request, m, err
	return i
}

// mayRepeat are the events with a write key. A repetition of the others is refused, from which the client concludes
// that the log has them.
var mayRepeat = map[entities.EventType]bool{
	entities.EventStepStarted:  true,
	entities.EventStepRetrying: true,
	entities.EventHookCreated:  true,
	entities.EventHookReceived: true,
	entities.EventHookDisposed: true,
	entities.EventAttrSet:      true,
}

// markOf returns what the extra data of an event with the write key contains: the entry of a CBOR map.
func markOf(writeKey string) ([]byte, error) {
	entry, err := codec.Marshal(map[string]string{"writeKey": writeKey})
	if err != nil {
		return nil, err
	}
	return entry[1:], nil // without the head of the map
}

// readMessage reads a message of a commit.
func (s *Server) readMessage(frame codec.Frame, project entities.Project) (i commitItem) {
	var m commitMessage
	err := codec.Unmarshal(frame.Meta, &m)
	i.message = &message.Message{
		Project: project, Topic: m.Topic, DeploymentID: m.DeploymentID, RunID: entities.RunID(m.RunID),
		ContentType: cmp.Or(m.ContentType, defaultContentType), Body: frame.Body, Key: m.Key,
		BeginsRun: message.Begins(m.Topic, frame.Body),
	}
	if err == nil {
		err = cmp.Or(address{project, m.Topic, m.DeploymentID}.check("deploymentId"), checkText("contentType", m.ContentType))
	}
	if err == nil {
		i.message.Delay, err = secondsOf("delay", m.Delay)
	}
	if err == nil {
		i.message.Retention, err = secondsOf("retention", m.Retention)
	}
	if err == nil {
		err = s.Queue.Validate(*i.message)
	}
	i.refused = err
	return i
}

// maxSeconds keeps times from overflowing. The queue has its own limits.
const maxSeconds = 1 << 31

func secondsOf(name string, n codec.Int) (time.Duration, error) {
	if n < 0 || n > maxSeconds {
		return 0, entities.Invalid("%s must be between 0 and %d seconds, not %d", name, maxSeconds, n)
	}
	return time.Duration(n) * time.Second, nil
}

// lease is a leased message that a commit acknowledges; nil for none.
type lease struct {
	project       entities.Project
	topic, handle string
}

// applied is what became of a commit.
type applied struct {
	// outcomes has one outcome for each item that was applied, or refused because it came too late. Those of messages
	// are zero.
	outcomes []eventlog.Outcome
	// refused is why the next item was refused, which ended the commit; nil if it was applied as a whole.
	refused error
}

// apply applies the items of a commit in one transaction, and acknowledges the message of the lease unless an item ends
// the commit. Then everything before that item is applied, without it.
func (s *Server) apply(ctx context.Context, project entities.Project, c *commit, ack *lease) (applied, error) {
	n, refused := len(c.items), error(nil)
	for i := range c.items {
		if c.items[i].refused != nil {
			n, refused = i, c.items[i].refused
			break
		}
	}
	for {
		if refused != nil {
			ack = nil
		}
		outcomes, failed, err := s.applyItems(ctx, project, c, n, ack)
		if err == nil {
			return applied{outcomes, refused}, nil
		}
		if failed < 0 || s.Problem(err).Status >= http.StatusInternalServerError {
			return applied{}, err
		}
		n, refused = failed, err
	}
}

// applyItems applies the first n items. If one of them ends the commit, nothing is written, and failed is its position.
// For other errors that is negative.
func (s *Server) applyItems(
	ctx context.Context, project entities.Project, c *commit, n int, ack *lease,
) (outcomes []eventlog.Outcome, failed int, err error) {
	var requests []eventlog.Request
	var messages []message.Message
	var at []int // the positions of the requests
	for i := range c.items[:n] {
		item := &c.items[i]
		if item.event != nil {
			requests, at = append(requests, *item.event), append(at, i)
			continue
		}
		m := *item.message
		m.Stored = &item.id
		messages = append(messages, m)
	}
	if i, err := s.checkMessages(ctx, c, n, len(requests) > 0); err != nil {
		return nil, i, err
	}
	outcomes = make([]eventlog.Outcome, n)
	if len(requests) == 0 {
		return outcomes, -1, s.sendAll(ctx, messages, ack)
	}
	o := eventlog.AppendOptions{Messages: messages}
	committed := func() {}
	if ack != nil {
		o.With, committed = s.Queue.AcknowledgeWith(ack.project, ack.topic, ack.handle)
	}
	appended, err := s.Log.AppendEach(ctx, project, entities.RunID(c.head.RunID), requests, o)
	if refusal, ok := errors.AsType[*eventlog.RefusedError](err); ok {
		return nil, at[refusal.Index], refusal.Err
	}
	if err != nil {
		return nil, -1, err
	}
	committed()
	for i, outcome := range appended {
		outcomes[at[i]] = outcome
	}
	return outcomes, -1, nil
}

// checkMessages refuses the first message of a run that its project may not start; see [Server.checkQuota]. The run of
// the events exists, or is checked when they create it.
func (s *Server) checkMessages(ctx context.Context, c *commit, n int, hasEvents bool) (int, error) {
	for i, item := range c.items[:n] {
		m := item.message
		if m == nil || m.RunID == "" || hasEvents && string(m.RunID) == c.head.RunID {
			continue
		}
		if err := s.Log.CheckMessage(ctx, m.Project, m.RunID); err != nil {
			return i, err
		}
	}
	return -1, nil
}

// sendAll sends the messages of a commit without events, and acknowledges the message of the lease.
func (s *Server) sendAll(ctx context.Context, messages []message.Message, ack *lease) error {
	switch len(messages) {
	case 0:
	case 1:
		id, err := s.Queue.Send(ctx, messages[0])
		if err != nil {
			return err
		}
		*messages[0].Stored = id
	default:
		if _, err := s.Queue.SendAll(ctx, messages); err != nil {
			return err
		}
	}
	if ack == nil {
		return nil
	}
	err := s.Queue.Acknowledge(ctx, ack.project, ack.topic, ack.handle)
	if errors.Is(err, message.ErrLeaseNotFound) {
		return nil // the message is delivered again, or somebody else has acknowledged it
	}
	return err
}

// postCommit is the endpoint of the own client: it applies a commit.
func (s *Server) postCommit(r *request) error {
	if err := checkVersion(r.Request().Header.Get(world.Header)); err != nil {
		return err
	}
	c, err := s.readCommit(r.Request().Body, r.project())
	if err != nil {
		return err
	}
	ack := c.end.lease(r.project())
	if c.end.RetryAfter != nil {
		ack = nil
	}
	done, err := s.apply(r.ctx(), r.project(), c, ack)
	if err != nil {
		return err
	}
	if c.end.RetryAfter != nil && c.end.Receipt != "" {
		if err := s.release(r.ctx(), lease{r.project(), c.end.Topic, c.end.Receipt}, c.end); err != nil {
			return err
		}
	}
	items, err := s.results(r, c, done)
	if err != nil {
		return err
	}
	return r.send(struct {
		Results []item `cbor:"results"`
	}{items})
}

// release ends a lease whose app wants the message again.
func (s *Server) release(ctx context.Context, l lease, end commitEnd) error {
	if end.Postponed {
		return s.Queue.Postpone(ctx, l.project, l.topic, l.handle, end.after())
	}
	return s.Queue.Nack(ctx, l.project, l.topic, l.handle, end.failure())
}

// lease returns the lease that the end of a commit names and acknowledges, or nil.
func (e commitEnd) lease(project entities.Project) *lease {
	if !e.Ack || e.Receipt == "" {
		return nil
	}
	return &lease{project, e.Topic, e.Receipt}
}

// results returns the outcomes of a commit's items, in their order. They bring no more payloads and no more of the log
// once they have as many bytes as a page may have.
func (s *Server) results(r *request, c *commit, done applied) ([]item, error) {
	list := make([]item, 0, len(done.outcomes)+1)
	size := 0
	for i, outcome := range done.outcomes {
		of := c.items[i]
		if size >= read.MaxPageBytes {
			of.with = read.WithoutPayloads
		}
		switch {
		case of.message != nil:
			list = append(list, item{Status: http.StatusCreated, MessageID: of.id})
		case outcome.Err != nil:
			list = append(list, s.Problem(outcome.Err).item())
		default:
			res, err := s.newResult(r, of.event.Type, outcome.Result, of.with)
			if err == nil && size < read.MaxPageBytes {
				err = s.addExcerpt(r, &res, outcome.Result, of.meta)
			}
			if err != nil {
				return nil, err
			}
			size += res.size()
			list = append(list, item{Status: http.StatusOK, result: &res})
		}
	}
	if done.refused != nil {
		list = append(list, s.Problem(done.refused).item())
	}
	return list, nil
}
