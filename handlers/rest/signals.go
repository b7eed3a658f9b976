package rest

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/queue/engine"
)

// signalJSON is the JSON form of a signal.
type signalJSON struct {
	ID   store.SignalID `json:"id"`
	Name string         `json:"name"`
	// Key is the ID that the sender gave the signal.
	Key       string    `json:"key,omitempty"`
	CreatedAt timestamp `json:"createdAt"`
	KeepUntil timestamp `json:"keepUntil"`
}

func newSignalJSON(s store.Signal) signalJSON {
	return signalJSON{s.ID, s.Name, s.Key, timestamp(s.CreatedAt), timestamp(s.KeepUntil)}
}

// listedSignalJSON adds the data, unless it is too long for a list.
type listedSignalJSON struct {
	signalJSON

	Data      json.RawMessage `json:"data,omitempty"`
	Truncated bool            `json:"truncated,omitempty"`
}

func newListedSignalJSON(s store.Signal) listedSignalJSON {
	return listedSignalJSON{newSignalJSON(s), s.Data, s.Data == nil}
}

// postSignal records a signal. It answers before hooks are resumed.
func (s *Server) postSignal(c echo.Context) error {
	var body struct {
		ID      string          `json:"id"`
		Data    json.RawMessage `json:"data"`
		KeepFor string          `json:"keepFor"`
	}
	r := s.request(c)
	name := r.pathText("name", "signal name")
	r.body(&body)
	if r.err != nil {
		return r.err
	}
	signal := store.Signal{Project: r.project(), Name: name, Key: body.ID, Data: body.Data}
	if body.Data == nil {
		signal.Data = []byte("null")
	}
	var keep time.Duration
	if body.KeepFor != "" {
		var err error
		if keep, err = parseDuration(body.KeepFor, engine.MaxKeep); err != nil {
			return badField("keepFor", "%v", err)
		}
	}
	stored, _, err := s.Runs.PostSignal(r.ctx(), signal, keep)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, newSignalJSON(stored))
}

// listSignals lists the stored signals, optionally by name.
func (s *Server) listSignals(c echo.Context) error {
	r := s.request(c)
	page := r.page(oldestFirst)
	query := func() ([]store.Signal, string, error) {
		return s.Runs.Signals(r.ctx(), r.project(), c.QueryParam("name"), page)
	}
	if r.payloads() == read.WithoutPayloads {
		return answerPage(r, newSignalJSON, query)
	}
	return answerPage(r, newListedSignalJSON, query)
}
