package wire

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/world"
)

const (
	// maxPoll is the longest time that a poll waits.
	maxPoll = 30 * time.Second
	// maxSlots limits the deliveries that one answer has, and the leases that one poll renews.
	maxSlots = 1000
	// maxPollBody is the size limit of a poll: that of so many receipts, amply.
	maxPollBody = 256 << 10
	// maxPulledBytes limits the logs in one answer. Further deliveries have none.
	maxPulledBytes = 8 << 20
)

// ErrUnasked refuses the polls of an app that is not configured to ask for its deliveries; see [Server.PullByDefault].
var ErrUnasked = errors.New("this server delivers to the URL at which a deployment is registered, and this one is " +
	"not: set STEPWELL_PULL=1 in the app, or STEPWELL_APP_URL to its address, or register it: stepwell deployments add")

// poll is a request of an app for its deliveries (§11.4).
type poll struct {
	World      codec.Int `cbor:"world"`
	Deployment string    `cbor:"deployment"`
	Process    string    `cbor:"process"`
	// Asked says that the app is configured to ask.
	Asked    bool      `cbor:"asked"`
	Slots    codec.Int `cbor:"slots"`
	WaitMs   codec.Int `cbor:"waitMs"`
	Receipts []string  `cbor:"receipts"`
}

func (p poll) check() error {
	switch {
	case p.Deployment == "":
		return entities.Invalid("deployment is missing")
	case p.Slots < 0 || p.Slots > maxSlots || len(p.Receipts) > maxSlots:
		return entities.Invalid("a poll has between 0 and %d slots, and up to as many receipts", maxSlots)
	case p.WaitMs < 0 || p.WaitMs > codec.Int(maxPoll/time.Millisecond):
		return entities.Invalid("waitMs: %d is not between 0 and %d", p.WaitMs, maxPoll/time.Millisecond)
	}
	return nil
}

// pull renews the leases of an app, and answers with its deliveries as soon as there are any.
func (s *Server) pull(r *request) error {
	if err := checkVersion(r.Request().Header.Get(world.Header)); err != nil {
		return err
	}
	var p poll
	r.Request().Body = http.MaxBytesReader(r.Response(), r.Request().Body, maxPollBody)
	r.body(&p)
	if r.err == nil {
		r.fail(p.check())
	}
	if r.err != nil {
		return r.err
	}
	app := world.App{Project: r.project(), Deployment: p.Deployment}
	if err := s.checkAsked(r, p); err != nil {
		return err
	}
	if err := s.Queue.Renew(r.ctx(), app, p.Receipts); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(r.ctx(), time.Duration(p.WaitMs)*time.Millisecond)
	defer cancel()
	defer context.AfterFunc(s.Draining, cancel)()
	var list []queue.Delivery
	if p.Slots > 0 {
		var err error
		if list, err = s.Queue.Pull(waiting, app, int(p.Slots)); err != nil {
			return err
		}
	}
	defer func() {
		for _, d := range list {
			d.Taken()
		}
	}()
	err := r.ctx().Err()
	if err == nil {
		err = s.answerPoll(r, list, p.Process)
	}
	if err != nil && len(list) > 0 { // the app is gone
		return errors.Join(err, s.Queue.GiveBack(r.ctx(), list))
	}
	return err
}

// checkAsked refuses an app that asks by itself, unless this server wants that or knows the app as one that asks.
func (s *Server) checkAsked(r *request, p poll) error {
	if p.Asked || s.PullByDefault {
		return nil
	}
	d, err := s.Queue.Deployment(r.ctx(), r.project(), p.Deployment)
	switch {
	case err == nil && d.URL == queue.PulledURL:
		return nil
	case err == nil:
		return message.ErrHasURL
	case errors.Is(err, message.ErrDeploymentNotFound):
		return ErrUnasked
	default:
		return err
	}
}

// pulledHead is the frame of a delivery in the answer to a poll. Its body is that of the delivery.
type pulledHead struct {
	Path   string            `cbor:"path"`
	Header map[string]string `cbor:"headers"`
}

func (s *Server) answerPoll(r *request, list []queue.Delivery, process string) error {
	var answer bytes.Buffer
	w := codec.NewFrameWriter(&answer)
	for _, d := range list {
		if answer.Len() < maxPulledBytes {
			s.addRun(r.ctx(), &d, process)
		}
		path, header := d.Request()
		head := pulledHead{path, map[string]string{}}
		for name := range header {
			head.Header[name] = header.Get(name)
		}
		meta, err := codec.Marshal(head)
		if err != nil {
			return err
		}
		if err := w.WriteFrame(meta, d.Body); err != nil {
			return err
		}
	}
	if err := w.WriteEnd("", false, nil); err != nil {
		return err
	}
	return r.Blob(http.StatusOK, world.MIME, answer.Bytes())
}

// addRun adds its run and the run's log to a delivery, as far as the process does not know the log. Without them, the
// client reads the log itself.
func (s *Server) addRun(ctx context.Context, d *queue.Delivery, process string) {
	if d.RunID == "" {
		return
	}
	body, upTo, err := s.Body(ctx, *d, s.Clients.Position(process, d.RunID))
	if err != nil {
		s.Logger.WarnContext(ctx, "deliver without the log", "message", d.ID, "run", d.RunID, "error", err)
		return
	}
	d.Body, d.ContentType = body, world.MIME
	s.Clients.Note(process, d.RunID, upTo)
}
