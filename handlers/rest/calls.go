package rest

import (
	"encoding/json"
	"net/http"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/engine"
)

// keepCall notes that a function works on a call.
func (s *Server) keepCall(r *request) error {
	id := r.runID()
	invocation := r.invocation()
	return answerNothing(r, func() error { return s.Runs.KeepCall(r.ctx(), r.project(), id, invocation) })
}

// givenAnswer is what a function would have answered.
type givenAnswer struct {
	Status      int             `json:"status"`
	ContentType string          `json:"contentType"`
	RetryAfter  string          `json:"retryAfter"`
	Body        json.RawMessage `json:"body"`
}

func (a givenAnswer) validate() error {
	switch {
	case a.Status < http.StatusOK || a.Status > 599:
		return badField("status", "it is not the status of an answer")
	case len(a.Body) > contract.MaxAnswer:
		return badField("body", "it is larger than an answer may be")
	default:
		return nil
	}
}

// answerCall takes the answer of a function whose call's connection has ended.
func (s *Server) answerCall(r *request) error {
	var given givenAnswer
	id := r.runID()
	invocation := r.invocation()
	r.body(&given)
	r.fail(given.validate())
	return answerNothing(r, func() error {
		return s.Runs.TakeAnswer(r.ctx(), r.project(), id, invocation, engine.GivenAnswer{
			Status: given.Status, ContentType: given.ContentType, RetryAfter: given.RetryAfter, Body: given.Body,
		})
	})
}
