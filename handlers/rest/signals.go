package rest

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/queue/engine"
)

// signal is the JSON form of a signal.
type signal struct {
	ID   entities.SignalID `json:"id"`
	Name string            `json:"name"`
	// Key is what its sender calls its ID.
	Key       string    `json:"key,omitempty"`
	CreatedAt timestamp `json:"createdAt"`
	KeepUntil timestamp `json:"keepUntil"`
}

func newSignal(s entities.Signal) signal {
	return signal{s.ID, s.Name, s.Key, timestamp(s.CreatedAt), timestamp(s.KeepUntil)}
}

// listedSignal also has the data, unless it is too long for a list.
type listedSignal struct {
	signal

	Data      json.RawMessage `json:"data,omitempty"`
	Truncated bool            `json:"truncated,omitempty"`
}

func newListedSignal(s entities.Signal) listedSignal {
	return listedSignal{newSignal(s), s.Data, s.Data == nil}
}

// postSignal records a signal. That hooks are resumed by it comes later.
func (s *Server) postSignal(c echo.Context) error {
	name, err := pathText(c, "name", "signal name")
	if err != nil {
		return err
	}
	var body struct {
		ID      string          `json:"id"`
		Data    json.RawMessage `json:"data"`
		KeepFor string          `json:"keepFor"`
	}
	if err := readBody(c, &body); err != nil {
		return err
	}
	posted := entities.Signal{Project: auth.Project(c), Name: name, Key: body.ID, Data: body.Data}
	if body.Data == nil {
		posted.Data = []byte("null")
	}
	keep, err := parseDuration(orZero(body.KeepFor), engine.MaxKeep)
	if err != nil {
		return badField("keepFor", "%v", err)
	}
	stored, _, err := s.Runs.PostSignal(c.Request().Context(), posted, keep)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, newSignal(stored))
}

// orZero is a duration that need not be given.
func orZero(s string) string {
	if s == "" {
		return "0s"
	}
	return s
}

// listSignals answers with the signals that are there, of all names or one.
func (s *Server) listSignals(c echo.Context) error {
	p, err := page(c, oldestFirst)
	if err != nil {
		return err
	}
	signals, next, err := s.Runs.Signals(c.Request().Context(), auth.Project(c), c.QueryParam("name"), p)
	if err != nil {
		return err
	}
	if !auth.Of(c).SeesPayloads() {
		return answerList(c, signals, next, newSignal)
	}
	return answerList(c, signals, next, newListedSignal)
}
