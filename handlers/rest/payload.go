package rest

import (
	"context"
	"encoding/json"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/share"
	"github.com/stepwell-dev/stepwell/eventlog/view"
)

// decodingFactor is the factor of [share.Pool] by which projects share the places for decoding: one that is alone gets
// half of them.
const decodingFactor = 1

// decoding shares the processors among the requests that decode payloads, which can take most of a second each. It has
// places for half of the processors. After each use a place stays empty for as long as the use took. So a project keeps
// at most an eighth of the processors busy, or half of one.
type decoding struct {
	places *share.Pool
	now    func() time.Time
}

func newDecoding(processors int, now func() time.Time) decoding {
	return decoding{share.NewPool(2 * max(1, int64(processors)/4)), now}
}

// do waits for a place and calls decode. It fails with the error of the context if that ends first.
func (d decoding) do(ctx context.Context, project entities.Project, decode func()) error {
	if err := d.places.Take(ctx, string(project), 1, decodingFactor); err != nil {
		return err
	}
	start := d.now()
	defer func() {
		release := func() { d.places.Release(string(project), 1) }
		if took := d.now().Sub(start); took > 0 {
			time.AfterFunc(took, release)
		} else {
			release()
		}
	}()
	decode()
	return nil
}

// decodeFor returns the result of a function that decodes payloads for the request. It waits for other decoding, and
// fails with the error of the request's context once the client has left.
func decodeFor[T any](r *request, decode func() T) (decoded T, err error) {
	if err := r.ctx().Err(); err != nil {
		return decoded, err
	}
	err = r.decoding.do(r.ctx(), r.project(), func() { decoded = decode() })
	return decoded, err
}

// payloadJSON returns an event's payload as JSON, if the server can decode it, and its encoding.
func payloadJSON(e entities.Event) (json.RawMessage, string) {
	v := view.Of(e)
	return v.Payload, v.Encoding
}

// failureJSON is the JSON form of the error of a run or a step.
type failureJSON struct {
	Code    string          `json:"code,omitempty"`
	Message string          `json:"message,omitempty"`
	Details json.RawMessage `json:"details,omitempty"`
}

// newFailureJSON combines the stored error code with the error in the payload of the failing event, which may be nil.
// The payload is a text or an object; other payloads are ignored. The stored code takes precedence.
func newFailureJSON(code string, e *entities.Event) *failureJSON {
	f := &failureJSON{Code: code}
	if e == nil {
		return f
	}
	value, _ := payloadJSON(*e)
	var object struct {
		Code    any
		Message string
		Details json.RawMessage
	}
	if json.Unmarshal(value, &f.Message) == nil || json.Unmarshal(value, &object) != nil {
		return f
	}
	f.Message, f.Details = object.Message, object.Details
	if text, ok := object.Code.(string); ok && code == "" {
		f.Code = text
	}
	return f
}
