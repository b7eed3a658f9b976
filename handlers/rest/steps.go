package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/kv"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// newStepJSON encodes what lists have of a step.
func newStepJSON(s entities.Step) api.Step {
	return api.Step{
		ID: string(s.ID), RunID: string(s.RunID), Name: s.Name, Status: api.StepStatus(s.Status),
		Attempt: int64(s.Attempt), CreatedAt: timestamp(s.CreatedAt),
		StartedAt: optionalTime(s.StartedAt), CompletedAt: optionalTime(s.CompletedAt),
		RetryAfter: optionalTime(s.RetryAfter),
	}
}

func (s *Server) listSteps(r *request) error {
	page, run := r.page(oldestFirst), r.run()
	return answerPage(r, newStepJSON, func() ([]entities.Step, string, error) {
		return store.ListSteps(r.ctx(), s.Reader, run.Project, run.ID, page)
	})
}

// stepResult is the body of a request that sends the result of a step which its function has accepted.
type stepResult struct {
	Output json.RawMessage   `json:"output"`
	Error  *contract.Failure `json:"error"`
}

func (b stepResult) validate() error {
	switch {
	case (b.Output == nil) == (b.Error == nil):
		return badField("output", "give either an output or an error")
	case b.Error != nil && b.Error.Message == "":
		return badField("error.message", "it is missing")
	case b.Error != nil && b.Error.Code != "":
		return inField("error.code", entities.ValidateName("code", b.Error.Code))
	default:
		return nil
	}
}

// endStep records the result of a step that its function has accepted.
func (s *Server) endStep(r *request) error {
	var body stepResult
	run, id := r.run(), entities.StepID(r.pathID("stepId", "step ID"))
	r.body(&body)
	r.fail(body.validate())
	return answerNothing(r, func() error {
		return s.Runs.EndStep(r.ctx(), run.Project, run.ID, id, engine.StepResult{Output: body.Output, Error: body.Error})
	})
}

func (s *Server) getStep(r *request) error {
	run, id := r.run(), entities.StepID(r.pathID("stepId", "step ID"))
	return answer(r, func() (v api.Step, err error) {
		step, err := store.StepByID(r.ctx(), s.Reader, run.Project, run.ID, id)
		if err != nil {
			return v, err
		}
		created := read.Position{RunID: run.ID, Seq: step.CreatedSeq}
		result := read.Position{RunID: run.ID, Seq: step.ResultSeq}
		with := r.payloads()
		events, err := s.Log.EventsAt(r.ctx(), []read.Position{created, result}, with)
		if err != nil {
			return v, err
		}
		return decodeFor(r, func() api.Step {
			v := newStepJSON(step)
			if e, ok := events[created]; ok {
				addCreation(&v, e, with)
			}
			if e, ok := events[result]; ok {
				addResult(&v, e, with)
			}
			return v
		})
	})
}

// addCreation adds the content of the event that created the step.
func addCreation(v *api.Step, e entities.Event, with read.Payloads) {
	if with == read.WithPayloads {
		v.Input, v.InputEncoding = payloadJSON(e)
	}
	if spec := e.Data.Step; spec != nil {
		v.Deployment, v.ChildID = spec.DeploymentID, string(spec.ChildID)
	}
}

// addResult adds the content of the event that ended the last attempt.
func addResult(v *api.Step, e entities.Event, with read.Payloads) {
	completed := e.Type == entities.EventStepCompleted
	switch {
	case completed && with == read.WithPayloads:
		v.Output, v.OutputEncoding = payloadJSON(e)
	case !completed && with == read.WithPayloads:
		v.Error = newFailureJSON(e.Data.ErrorCode, &e)
	case !completed:
		v.Error = newFailureJSON(e.Data.ErrorCode, nil)
	}
}

func newStoreValueJSON(v store.RunValue) api.StoreValue {
	return api.StoreValue{Value: json.RawMessage(v.Value), Seq: v.Seq}
}

// getStore answers with the store of a run, by key.
func (s *Server) getStore(r *request) error {
	run := r.run()
	return answer(r, func() (api.RunStore, error) {
		values, err := s.Log.Store(r.ctx(), run)
		data := make(map[string]api.StoreValue, len(values))
		for _, v := range values {
			data[v.Key] = newStoreValueJSON(v)
		}
		return api.RunStore{Data: data}, err
	})
}

// getStoreValue answers with the value of one key.
func (s *Server) getStoreValue(r *request) error {
	key, run := r.pathText("key", "key"), r.run()
	r.fail(inParam("key", entities.ValidateText("key", key, utf8.UTFMax*kv.MaxKey)))
	return answerAs(r, newStoreValueJSON, func() (store.RunValue, error) { return s.Log.StoreValue(r.ctx(), run, key) })
}

// listWaits lists all waits that a run ever had.
func (s *Server) listWaits(r *request) error {
	page, run := r.page(oldestFirst), r.run()
	encode := func(w read.WaitHistory) api.Wait {
		v := api.Wait{
			ID: string(w.ID), RunID: string(w.RunID), Status: string(w.Status()), ResumeAt: optionalTime(w.Data.ResumeAt),
			CreatedAt: timestamp(w.CreatedAt), CompletedAt: optionalTime(w.CompletedAt),
		}
		if w.CompletedAt == nil && run.Status.Ended() {
			v.Status = abandoned
		}
		return v
	}
	return answerPage(r, encode, func() ([]read.WaitHistory, string, error) {
		return s.Log.WaitHistories(r.ctx(), run.Project, run.ID, "", page)
	})
}

// newStreamJSON encodes a stream of a run. Its own ones are closed when it ends.
func newStreamJSON(run entities.Run, s store.StoredStream) api.Stream {
	name, closed := string(s.Name), s.ClosedAt
	if _, own, ok := s.Name.OfRun(); ok {
		name = own
		if closed == nil {
			closed = run.CompletedAt
		}
	}
	return api.Stream{Name: name, Chunks: s.Chunks, CreatedAt: timestamp(s.CreatedAt), ClosedAt: optionalTime(closed)}
}

func (s *Server) listStreams(r *request) error {
	run := r.run()
	encode := func(s store.StoredStream) api.Stream { return newStreamJSON(run, s) }
	return answerAll(r, encode, func(ctx context.Context, p entities.Project) ([]store.StoredStream, error) {
		return s.Streams.Of(ctx, p, run.ID)
	})
}

// listChunks answers with a page of a stream's chunks. The cursor is the index of the next chunk.
func (s *Server) listChunks(r *request) error {
	page := r.page(oldestFirst)
	from := r.number("cursor", page.Cursor, "the index of a chunk")
	name, decoded := s.stream(r, false), r.flag("decoded", false)
	if r.err != nil {
		return r.err
	}
	chunks, info, err := s.Streams.Chunks(r.ctx(), r.project(), name, from, page.Limit)
	if err != nil {
		return err
	}
	body := api.Chunks{Data: encodeAll(chunks, newChunkJSON), Closed: info.ClosedAt != nil}
	if decoded {
		if body.Data, err = r.decodeChunks(name, chunks); err != nil {
			return err
		}
	}
	if n := len(body.Data); n > 0 {
		from = chunks[n-1].Idx + 1
	}
	if from < info.Chunks {
		body.Cursor = strconv.FormatInt(from, 10)
	}
	return r.JSON(http.StatusOK, body)
}

// stream returns the stored name of the stream in the path. It fails with [entities.ErrStreamNotFound] if the run in
// the path has no such stream, unless it may come, and would then be one of the run's own.
func (s *Server) stream(r *request, mayCome bool) entities.StreamName {
	run, text := r.run(), r.pathText("name", "stream name")
	r.fail(entities.ValidateName("stream name", text))
	if r.err != nil {
		return ""
	}
	own, name := entities.RunStream(run.ID, text), entities.StreamName(text)
	info, err := s.Streams.Info(r.ctx(), run.Project, own)
	if err != nil || info.ID != 0 {
		r.fail(err)
		return own
	}
	info, err = s.Streams.Info(r.ctx(), run.Project, name)
	switch {
	case err == nil && info.RunID == run.ID:
		return name
	case err == nil && mayCome:
		return own
	case err == nil:
		err = fmt.Errorf("run %s has no stream %q: %w", run.ID, text, entities.ErrStreamNotFound)
	}
	r.fail(err)
	return name
}

// tailStream streams the chunks as they are written, until the stream is closed: as bytes or, if the client accepts
// them, as server-sent events.
func (s *Server) tailStream(r *request) error {
	from, name, decoded := r.firstChunk(), s.stream(r, r.flag("wait", false)), r.flag("decoded", false)
	events := strings.Contains(r.Request().Header.Get(echo.HeaderAccept), mimeEvents)
	if decoded && !events {
		r.fail(badParam("decoded", "it needs the header Accept: %s", mimeEvents))
	}
	if r.err != nil {
		return r.err
	}
	ctx, cancel := context.WithCancel(r.ctx())
	defer cancel()
	defer context.AfterFunc(s.Draining, cancel)()

	w, mediaType := incoming.NewLiveWriter(ctx, r), echo.MIMEOctetStream
	defer w.Close()
	send := func(ch store.Chunk) error { return w.Send(ch.Data) }
	if events {
		mediaType = mimeEvents
		send = func(ch store.Chunk) error { return r.sendChunk(w, name, ch, decoded) }
	}
	beginStream(w.Response, mediaType)
	w.Flush()
	err := s.Streams.Tail(ctx, r.project(), name, from, send)
	if err == nil && events {
		err = w.Send([]byte(endEvent))
	}
	if err != nil {
		s.abort(r, err)
	}
	return nil
}

// sendChunk sends a chunk as an event: as it was written, or what is in it.
func (r *request) sendChunk(w *incoming.LiveWriter, of entities.StreamName, ch store.Chunk, decoded bool) error {
	v := newChunkJSON(ch)
	if decoded {
		shown, err := r.decodeChunks(of, []store.Chunk{ch})
		if err != nil {
			return err
		}
		v = shown[0]
	}
	text, err := eventText(strconv.FormatInt(ch.Idx, 10), v)
	if err != nil {
		return err
	}
	return w.Send(text)
}

// firstChunk returns the index of the first chunk to send: the one after the last event the client received, or the
// parameter from, where a negative index counts from the end.
func (r *request) firstChunk() int64 {
	if last := r.lastEventID(); last != "" {
		return r.number("Last-Event-ID", last, "the ID of an event of this stream") + 1
	}
	s := r.QueryParam("from")
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		r.fail(badParam("from", "%q is not a number", s))
	}
	return n
}
