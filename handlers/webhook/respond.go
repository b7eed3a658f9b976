package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

// answer answers a recorded request with the workflow's response or, if there is none within the timeout, with 202.
func (s *Server) answer(r call, id string, timeout time.Duration) error {
	if timeout > 0 {
		name := webhook.ResponseStream(r.hook.RunID, r.hook.ID, id)
		response, err := s.await(r, timeout, func(ctx context.Context) (*contract.Response, error) {
			return s.responded(ctx, r.project, name)
		})
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
func (s *Server) await(
	r call, timeout time.Duration, response func(context.Context) (*contract.Response, error),
) (*contract.Response, error) {
	leave, ok := s.waits.enter(r.target)
	if !ok {
		return nil, nil //nolint:nilnil // the request is recorded, so it must not fail
	}
	defer leave()
	incoming.Waits(r)
	ctx, cancel := context.WithTimeout(r.Request().Context(), timeout)
	defer cancel()
	defer context.AfterFunc(s.Draining, cancel)()
	found, err := response(ctx)
	if ctx.Err() != nil {
		return nil, nil //nolint:nilnil // a missing response is not an error
	}
	return found, err
}

// responded waits for the response in a stream.
func (s *Server) responded(
	ctx context.Context, project entities.Project, name entities.StreamName,
) (response *contract.Response, err error) {
	err = s.Streams.Tail(ctx, project, name, 0, func(chunk store.Chunk) error {
		response = &contract.Response{}
		return json.Unmarshal(chunk.Data, response)
	})
	if err == nil && (response == nil || response.Status < 200 || response.Status > 599) {
		err = errors.New("not a valid response")
	}
	if err != nil {
		return nil, fmt.Errorf("read stream %q: %w", name, err)
	}
	return response, nil
}

// answerWithRun answers the request to a trigger with what the run has responded or, if it has ended without that, with
// its output. If there is neither within the trigger's time, it answers 202 with the run.
func (s *Server) answerWithRun(r call, started startedJSON) error {
	if timeout := r.trigger.Options.Respond; timeout > 0 && started.RunID != "" {
		response, err := s.await(r, timeout, func(ctx context.Context) (*contract.Response, error) {
			return s.respondedOrEnded(ctx, r.project, started)
		})
		if err != nil {
			return notFound(err)
		}
		if response != nil {
			return write(r, *response)
		}
	}
	return r.JSON(http.StatusAccepted, started)
}

// respondedOrEnded waits until the run has responded to the request that has started it, or has ended.
func (s *Server) respondedOrEnded(
	ctx context.Context, project entities.Project, started startedJSON,
) (*contract.Response, error) {
	name := webhook.ResponseStream(started.RunID, "", started.Request)
	var run entities.Run
	var watched error
	tailing, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer stop()
		watched = rescue.Do(tailing, "wait for the end of a run", func() (err error) {
			run, err = s.Log.WaitForEnd(context.WithoutCancel(ctx), tailing, project, started.RunID)
			return err
		})
	}()
	response, err := s.responded(tailing, project, name)
	over := tailing.Err() != nil
	stop()
	<-ended
	switch {
	case !over || ctx.Err() != nil:
		return response, err
	case watched != nil:
		return nil, watched
	}
	if last, _, err := s.Streams.Chunks(ctx, project, name, 0, 1); err == nil && len(last) > 0 {
		return s.responded(ctx, project, name) // in the same commit as its end, perhaps
	}
	return s.outputOf(ctx, run)
}

// outputOf returns the output of a run that has completed as a response; nil if its clients encode it in a way of their
// own. It fails with [ErrFailed].
func (s *Server) outputOf(ctx context.Context, run entities.Run) (*contract.Response, error) {
	if run.Status != entities.RunCompleted {
		return nil, ErrFailed
	}
	end, err := s.Log.Event(ctx, run.Project, run.ID, run.EndSeq)
	if err != nil || run.Driver != entities.DriverServer {
		return nil, err
	}
	return &contract.Response{
		Status: http.StatusOK, Headers: map[string]string{"Content-Type": "application/json"}, Body: end.Payload,
	}, nil
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
