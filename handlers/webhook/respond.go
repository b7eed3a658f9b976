package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

// answer answers a recorded request with the workflow's response or, if there is none within the timeout, with 202.
func (s *Server) answer(r call, id string, timeout time.Duration) error {
	if timeout > 0 {
		response, err := s.await(r, id, timeout)
		if err != nil {
			return err
		}
		if response != nil {
			return write(r, *response)
		}
	}
	return r.JSON(http.StatusAccepted, map[string]string{"request": id})
}

// await waits for the workflow's response. It returns nil on timeout, when the server drains, and at once if too many
// requests wait already.
func (s *Server) await(r call, id string, timeout time.Duration) (*contract.Response, error) {
	leave, ok := s.waits.enter(r.target)
	if !ok {
		return nil, nil //nolint:nilnil // the request is recorded, so it must not fail
	}
	defer leave()
	incoming.Waits(r)
	ctx, cancel := context.WithTimeout(r.Request().Context(), timeout)
	defer cancel()
	defer context.AfterFunc(s.Draining, cancel)()
	var response *contract.Response
	name := webhook.ResponseStream(r.hook.RunID, r.hook.ID, id)
	err := s.Streams.Tail(ctx, r.hook.Project, name, 0, func(chunk store.Chunk) error {
		response = &contract.Response{}
		return json.Unmarshal(chunk.Data, response)
	})
	if ctx.Err() != nil {
		return nil, nil //nolint:nilnil // a missing response is not an error
	}
	if err == nil && (response == nil || response.Status < 200 || response.Status > 599) {
		err = errors.New("not a valid response")
	}
	if err != nil {
		return nil, fmt.Errorf("read stream %q: %w", name, err)
	}
	return response, nil
}

// write sends the workflow's response.
func write(r call, response contract.Response) error {
	h := r.Response().Header()
	h.Del("Content-Security-Policy") // protect adds it to the workflow's
	for name, value := range response.Headers {
		if !webhook.SharedHeader(name) { // an older server may have stored it
			h.Set(name, value)
		}
	}
	protect(h)
	r.Response().WriteHeader(response.Status)
	if len(response.Body) == 0 {
		return nil
	}
	_, err := r.Response().Write(response.Body)
	return err
}
