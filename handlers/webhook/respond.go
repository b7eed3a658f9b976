package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/queue/contract"
)

// accepted is the answer to a request that the log has.
type accepted struct {
	Request string `json:"request"`
}

// answer answers a request that is recorded: with the workflow's response, if there is one in time, or else by
// saying that it is.
func (s *Server) answer(r call, id string, patience time.Duration) error {
	if patience > 0 {
		response, err := s.await(r, id, patience)
		if err != nil {
			return err
		}
		if response != nil {
			return write(r, *response)
		}
	}
	return r.JSON(http.StatusAccepted, accepted{id})
}

// await waits for the workflow's response. There is none when patience ends, or the server is about to.
func (s *Server) await(r call, id string, patience time.Duration) (*contract.Response, error) {
	ctx, cancel := context.WithTimeout(r.Request().Context(), patience)
	defer cancel()
	defer context.AfterFunc(s.Draining, cancel)()
	var response *contract.Response
	name := webhook.ResponseStream(r.hook.RunID, r.hook.ID, id)
	err := s.Streams.Tail(ctx, r.hook.Project, name, 0, func(chunk store.Chunk) error {
		response = &contract.Response{}
		return json.Unmarshal(chunk.Data, response)
	})
	if ctx.Err() != nil {
		return nil, nil //nolint:nilnil // no response is no error
	}
	if err == nil && (response == nil || response.Status < 200 || response.Status > 599) {
		err = errors.New("it is no response")
	}
	if err != nil {
		return nil, fmt.Errorf("read stream %q: %w", name, err)
	}
	return response, nil
}

// write answers with the workflow's response.
func write(r call, response contract.Response) error {
	h := r.Response().Header()
	h.Del("Content-Security-Policy") // ours comes with theirs
	for name, value := range response.Headers {
		h.Set(name, value)
	}
	protect(h)
	r.Response().WriteHeader(response.Status)
	if len(response.Body) == 0 {
		return nil
	}
	_, err := r.Response().Write(response.Body)
	return err
}
