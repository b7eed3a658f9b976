package rest

import (
	"fmt"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/entities/inbox"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/pg"
)

// The places from which a copy of a run goes on, by name.
const (
	fromStart   = "start"
	fromFailure = "failure"
)

// isFork reports whether a rerun keeps events of the original.
func isFork(body api.RerunRunBody) bool { return body.At != 0 || body.From == fromFailure }

// placeOf names the place where a rerun goes on, for the digest of its request: empty for the start.
func placeOf(body api.RerunRunBody) string {
	if !isFork(body) {
		return ""
	}
	return fmt.Sprintf(" from %s %d", body.From, body.At)
}

// checkFrom checks from where a copy of a run in the status goes on.
func checkFrom(from string, status entities.RunStatus) error {
	switch {
	case from == "" || from == fromStart:
		return nil
	case from != fromFailure:
		return badField("from", "%q is neither %s nor %s", from, fromStart, fromFailure)
	case status != entities.RunFailed && status != entities.RunCancelled:
		return badField("from", "a run that is %s has not failed: say at which event to go on", status)
	default:
		return nil
	}
}

// checkPlace checks the place where a copy of a run goes on.
func checkPlace(body api.RerunRunBody, original entities.Run) error {
	switch {
	case body.At != 0 && body.From != "":
		return badField("at", "there is a from as well: give one of them")
	case body.At < 0 || body.At > original.LastSeq:
		return badField("at", "%d is not a number from 1 to %d, the length of the log", body.At, original.LastSeq)
	default:
		return checkFrom(body.From, original.Status)
	}
}

// keep returns the event that starts a copy of a run as that of a fork, which keeps events of the original.
func (s *Server) keep(
	r *request, original entities.Run, body api.RerunRunBody, created eventlog.Request,
) (eventlog.Request, error) {
	if original.Driver == entities.DriverClient {
		return created, &entities.ForkRefusedError{Reason: entities.ForkSDK, Text: "the Workflow SDK makes the IDs of a " +
			"run's steps from the ID of the run, so that another run cannot go on from its log: rerun it"}
	}
	upTo := body.At
	if upTo == 0 {
		upTo = original.EndSeq
	}
	log, err := s.firstEvents(r, original.ID, upTo)
	if err != nil {
		return created, err
	}
	if body.At == 0 {
		n, err := eventlog.BeforeFailure(log)
		if err != nil {
			return created, err
		}
		log = log[:n]
	}
	inboxes, err := s.inboxesOf(r, original)
	if err != nil {
		return created, err
	}
	if len(log) <= len(inboxes) {
		return created, badField("at", "the run opens its inboxes first: keep %d events at least", 1+len(inboxes))
	}
	giveOwnInboxes(log)
	return s.Log.Fork(r.ctx(), r.project(), created, log)
}

// firstEvents reads the first events of a run's log.
func (s *Server) firstEvents(r *request, id entities.RunID, upTo int64) (log []entities.Event, err error) {
	if upTo > eventlog.MaxForkEvents+1 { // the last one may be the end, which no fork keeps
		return nil, &entities.ForkTooLargeError{What: "events", Limit: eventlog.MaxForkEvents}
	}
	size := 0
	for page := (read.EventPage{More: true}); page.More; {
		p := pg.Page{Limit: pg.MaxPage}
		if len(log) > 0 {
			p.Cursor = read.EventCursorAt(int64(len(log)))
		}
		if page, err = s.Log.Prefix(r.ctx(), id, upTo, p); err != nil {
			return nil, err
		}
		for _, e := range page.Events {
			if atrest.IsUnreadable(e.Payload) {
				return nil, atrest.ErrShredded
			}
			size += len(e.Payload) + len(e.Extra)
		}
		if log = append(log, page.Events...); size > eventlog.MaxForkBytes {
			return nil, &entities.ForkTooLargeError{What: "bytes of payloads", Limit: eventlog.MaxForkBytes}
		}
	}
	if int64(len(log)) < upTo { // retention deleted the run meanwhile
		return nil, entities.ErrRunNotFound
	}
	return log, nil
}

// giveOwnInboxes gives the inboxes in a log new tokens: the original may have the others still. Nobody knows an inbox
// by its token.
func giveOwnInboxes(log []entities.Event) {
	for i, e := range log {
		if _, ok := inbox.Name(entities.HookID(e.CorrelationID)); ok && e.Type == entities.EventHookCreated {
			log[i].Data.Token = inbox.NewToken()
		}
	}
}
