package rest

import (
	"net/http"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/queue/contract"
)

// commandRun executes commands that a function sends before it answers its invocation. With the parameter "after", it
// answers with the events that follow that position.
func (s *Server) commandRun(r *request) error {
	id := r.runID()
	invocation := r.invocation()
	body := r.rawBody()
	if len(body) > contract.MaxAnswer {
		r.fail(entities.Invalid("the commands are %d bytes; the limit is %d", len(body), contract.MaxAnswer))
	}
	if !r.QueryParams().Has("after") {
		return answerNothing(r, func() error {
			_, err := s.Runs.Command(r.ctx(), r.project(), id, invocation, body)
			return err
		})
	}
	after := r.after()
	if r.err != nil {
		return r.err
	}
	results, err := s.Runs.Exchange(r.ctx(), r.project(), id, invocation, after, body)
	if err != nil {
		return err
	}
	return s.answerExchange(r, id, after, results)
}

// invocation returns the invocation that sends the request: that of the token, or of the header.
func (r *request) invocation() string {
	header := r.Request().Header.Get(contract.HeaderInvocation)
	call := auth.IdentityOf(r).Call
	switch {
	case call != nil && header != "" && header != call.Invocation:
		r.fail(entities.Invalid("the header %s names another invocation than the token is for", contract.HeaderInvocation))
	case call != nil:
		return call.Invocation
	case header == "":
		r.fail(entities.Invalid("the header %s is missing: send the name of the invocation", contract.HeaderInvocation))
	}
	return header
}

// exchange is the answer to commands of a function that follows the log.
type exchange struct {
	// Seq is the position of the last of Events, or the position that the request named if there is none.
	Seq    int64        `json:"seq"`
	Events []view.Event `json:"events"`
	// More is set if the log goes on after Seq.
	More bool `json:"more,omitempty"`
}

// answerExchange answers with the events after the position, of which the results of the commands are a part.
func (s *Server) answerExchange(r *request, id entities.RunID, after int64, results []eventlog.Result) error {
	listing, err := s.eventsAfter(r, id, after, results)
	if err != nil {
		return err
	}
	events, err := r.encodeEvents(formShown, listing.Entries)
	if err != nil {
		return err
	}
	if n := len(events); n > 0 {
		after = events[n-1].Seq
	}
	return r.JSON(http.StatusOK, exchange{after, events, listing.More || len(events) < len(listing.Entries)})
}

// eventsAfter returns the first page of the run's events after the position. If the log is cached, it is in the results
// of the commands, and needs no read.
func (s *Server) eventsAfter(
	r *request, id entities.RunID, after int64, results []eventlog.Result,
) (listing read.Listing, err error) {
	page := pg.Page{Limit: contract.InlineEvents}
	if n := len(results); n > 0 && results[n-1].Log != nil {
		log := results[n-1].Log
		for _, e := range log[min(after, int64(len(log))):] {
			listing.Entries = append(listing.Entries, read.Entry{Event: e, Size: int64(len(e.Payload))})
		}
		return listing, nil
	}
	return s.Log.RunEvents(r.ctx(), r.project(), id, read.EventQuery{After: after}, page, read.WithPayloads)
}
