package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/world"
)

const (
	// maxLogBytes limits the payloads and the extra data of the log in a delivery.
	maxLogBytes = 1 << 20
	// maxRetryAfter is the longest time after which an app may have a message delivered again.
	maxRetryAfter = 12 * time.Hour
	// maxReason is how many bytes of the reason of a failure are kept.
	maxReason = 300
)

// deliveryHead is the first frame of a delivery that carries its run (§11.2).
type deliveryHead struct {
	World       codec.Int `cbor:"world"`
	ContentType string    `cbor:"contentType"`
	Run         *run      `cbor:"run,omitzero"`
	After       codec.Int `cbor:"after,omitzero"`
}

// Body implements [queue.World].
func (s *Server) Body(ctx context.Context, d queue.Delivery, after int64) ([]byte, int64, error) {
	now, page, err := s.current(ctx, d, &after)
	if err != nil {
		return nil, 0, err
	}
	head := deliveryHead{World: world.Version, ContentType: d.ContentType, After: codec.Int(after)}
	var snapshot *codec.Snapshot
	if now != nil {
		snapshot = snapshotOf(now.Run)
		if head.Run, err = s.summary(ctx, *now, page); err != nil {
			return nil, 0, err
		}
	}
	meta, err := codec.Marshal(head)
	if err != nil {
		return nil, 0, err
	}
	var body bytes.Buffer
	w := codec.NewFrameWriter(&body)
	err = w.WriteFrame(meta, d.Body)
	if err == nil {
		err = writeRows(w, rowsForReplay(now, page.Events))
	}
	next, upTo := "", after
	if n := len(page.Events); n > 0 {
		next, upTo = read.EventCursor(page.Events[n-1]), page.Events[n-1].Seq
	}
	if err == nil {
		err = w.WriteEnd(next, page.More, snapshot)
	}
	return body.Bytes(), upTo, err
}

// rowsForReplay returns events as the client of the run needs them: since version 8, without the inputs of steps.
func rowsForReplay(of *eventlog.Result, events []entities.Event) []read.Row {
	lean := of != nil && of.Run.SpecVersion >= entities.SpecTakeover
	rows := make([]read.Row, len(events))
	for i := range events {
		rows[i] = read.RowOf(&events[i])
		if lean && rows[i].Type == entities.EventStepCreated {
			rows[i].Payload = nil
		}
	}
	return rows
}

// current returns the run of a delivery, nil if there is none, and the page of its log after a position. They are at
// least as new as the delivery's lease. A delivery for the workflow starts a pending run. One for a step, or of a run
// that has ended, has no log. After becomes 0 unless the page begins after it.
func (s *Server) current(
	ctx context.Context, d queue.Delivery, after *int64,
) (of *eventlog.Result, page read.EventPage, err error) {
	known := *after
	*after = 0
	now, cached := s.Log.Cached(ctx, d.Project, d.RunID, d.LeasedSeq)
	if !cached || known > now.Run.LastSeq { // another process has sent the app more than this one knows
		now = eventlog.Result{}
		now.Run, err = store.RunByID(ctx, s.Reader, d.Project, d.RunID)
	}
	switch {
	case errors.Is(err, entities.ErrRunNotFound):
		return nil, page, nil // its run_created is under way
	case err != nil:
		return nil, page, err
	case d.IsForStep() || now.Run.Status.Ended():
		return &now, page, nil
	case now.Run.Status == entities.RunPending && !now.Run.Fenced(): // it is started as its client would do
		now, err = s.Log.Append(ctx, d.Project, eventlog.Request{
			RunID: d.RunID, Type: entities.EventRunStarted, SpecVersion: now.Run.SpecVersion,
		})
		if err != nil {
			return nil, page, err
		}
	case known <= now.Run.LastSeq:
		*after = known
	}
	page, err = s.logAfter(ctx, now, *after)
	return &now, page, err
}

// logAfter returns the page of a run's log after a position, from memory if it is cached.
func (s *Server) logAfter(ctx context.Context, now eventlog.Result, after int64) (read.EventPage, error) {
	p := pg.Page{Limit: eventPage}
	if after > 0 {
		p.Cursor = read.EventCursorAt(after)
	}
	if page, ok := now.Page(p); ok {
		return page, nil
	}
	return s.Log.EventsWithin(ctx, now.Run.ID, after, eventPage, maxLogBytes)
}

// summary returns a run without payloads: from its log, or the page of it, if that is there from its beginning.
func (s *Server) summary(ctx context.Context, now eventlog.Result, page read.EventPage) (*run, error) {
	log := now.Log
	if log == nil {
		log = page.Events
	}
	if len(log) > 0 && log[0].Seq == 1 {
		first := log[0]
		first.Payload = nil
		w, err := newRun(now.Run, &first, nil)
		return &w, err
	}
	list, err := runResource.load(ctx, s, []entities.Run{now.Run}, read.WithoutPayloads)
	if err != nil {
		return nil, err
	}
	return &list[0], nil
}

// Answer implements [queue.World]. The message is acknowledged in the transaction of the commit's events.
func (s *Server) Answer(ctx context.Context, d queue.Delivery, body []byte) error {
	c, err := s.readCommit(bytes.NewReader(body), d.Project)
	switch {
	case err != nil:
		return fmt.Errorf("%s%w", message.AnswerRefused, err)
	case c.head.RunID != string(d.RunID):
		return queue.PublicError(message.AnswerRefused + "it is about another run")
	case !c.end.Ack && c.end.RetryAfter == nil:
		return queue.PublicError(message.AnswerRefused + "its end has neither ack nor retryAfter")
	}
	ack := &lease{d.Project, d.Topic, d.Lease}
	if c.end.RetryAfter != nil {
		ack = nil
	}
	done, err := s.apply(ctx, d.Project, c, ack)
	switch {
	case err != nil:
		return err
	case done.refused != nil:
		return fmt.Errorf("%s%w", message.AnswerRefused, done.refused)
	case c.end.Postponed && ack == nil:
		return s.Queue.Postpone(ctx, d.Project, d.Topic, d.Lease, c.end.after())
	case ack == nil:
		f := c.end.failure()
		return &f
	}
	return nil
}

// failure returns the failure of a delivery whose app wants the message again.
func (e commitEnd) failure() queue.Failure {
	return queue.Failure{
		Reason: "the app failed: " + e.Reason[:min(len(e.Reason), maxReason)], Public: "the app failed",
		Reached: !e.Unreached,
		After:   e.after(),
	}
}

// after returns the time after which the app wants the message again.
func (e commitEnd) after() time.Duration {
	return min(time.Duration(max(0, min(*e.RetryAfter, maxSeconds)))*time.Second, maxRetryAfter)
}
