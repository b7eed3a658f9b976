package rest

import (
	"net/http"

	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

func newSignalJSON(s store.Signal) api.Signal {
	return api.Signal{
		ID: string(s.ID), Name: s.Name, Key: s.Key, CreatedAt: timestamp(s.CreatedAt), KeepUntil: timestamp(s.KeepUntil),
		RememberedUntil: timestamp(s.RememberedUntil()),
	}
}

// newListedSignalJSON adds the data, unless it is too long for a list.
func newListedSignalJSON(s store.Signal) api.ListedSignal {
	return api.ListedSignal{
		ID: string(s.ID), Name: s.Name, Key: s.Key, CreatedAt: timestamp(s.CreatedAt), KeepUntil: timestamp(s.KeepUntil),
		RememberedUntil: timestamp(s.RememberedUntil()), Data: s.Data, Truncated: s.Data == nil,
	}
}

// postSignal records a signal. It answers before hooks are resumed.
func (s *Server) postSignal(r *request) error {
	var body api.PostSignalBody
	name := r.pathText("name", "signal name")
	r.body(&body)
	keep, err := durationField("keepFor", body.KeepFor, engine.MaxKeep)
	r.fail(err)
	signal := store.Signal{Project: r.project(), Name: name, Key: body.ID, Data: body.Data}
	if body.Data == nil {
		signal.Data = []byte("null")
	}
	r.setStatus(http.StatusAccepted)
	return answerAs(r, newSignalJSON, func() (store.Signal, error) {
		stored, _, err := s.Runs.PostSignal(r.ctx(), signal, keep)
		return stored, err
	})
}

// listSignals lists the stored signals, optionally by name.
func (s *Server) listSignals(r *request) error {
	page := r.page(oldestFirst)
	query := func() ([]store.Signal, string, error) {
		return s.Runs.Signals(r.ctx(), r.project(), r.QueryParam("name"), page)
	}
	if r.payloads() == read.WithoutPayloads {
		return answerPage(r, newSignalJSON, query)
	}
	return answerPage(r, newListedSignalJSON, query)
}
