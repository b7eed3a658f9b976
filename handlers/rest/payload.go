package rest

import (
	"encoding/json"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// payloadsFor is whether whoever asks may see payloads.
func payloadsFor(c echo.Context) read.Payloads {
	if auth.Of(c).SeesPayloads() {
		return read.WithPayloads
	}
	return read.WithoutPayloads
}

// decode is an event's payload as far as it can be shown, and what it is.
func decode(e entities.Event) (json.RawMessage, string) {
	v := view.Of(e)
	return v.Payload, v.Encoding
}

// failure is the JSON form of why a run or a step failed, as far as its error can be read.
type failure struct {
	Code    string          `json:"code,omitempty"`
	Message string          `json:"message,omitempty"`
	Details json.RawMessage `json:"details,omitempty"`
}

// newFailure reads an error: of the event that brought it, if that is at hand, and the code that the server knows.
func newFailure(code string, e *entities.Event) *failure {
	f := &failure{Code: code}
	if e == nil {
		return f
	}
	value, _ := decode(*e)
	var given struct {
		Code    any
		Message string
		Details json.RawMessage
	}
	if json.Unmarshal(value, &f.Message) == nil || json.Unmarshal(value, &given) != nil {
		return f // it is a text, or of another shape than we look for
	}
	f.Message, f.Details = given.Message, given.Details
	if text, ok := given.Code.(string); ok && code == "" {
		f.Code = text
	}
	return f
}
