package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/strictjson"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/pull"
)

// keepCall notes that a function works on a call.
func (s *Server) keepCall(r *request) error {
	call := r.call()
	return answerNothing(r, func() error { return s.Runs.KeepCall(r.ctx(), call) })
}

// checkGivenAnswer checks what a function would have answered.
func checkGivenAnswer(a api.AnswerCallBody) error {
	switch {
	case a.Status < http.StatusOK || a.Status > 599:
		return badField("status", "it is not the status of an answer")
	case a.Seen < 0:
		return badField("seen", "it is not %s", eventPosition)
	case len(a.Body) > contract.MaxAnswer:
		return badField("body", "it is larger than an answer may be")
	default:
		return nil
	}
}

// answerCall takes the answer of a function whose call's connection has ended.
func (s *Server) answerCall(r *request) error {
	var given api.AnswerCallBody
	call := r.call()
	r.body(&given)
	r.fail(checkGivenAnswer(given))
	return answerNothing(r, func() error {
		return s.Runs.TakeAnswer(r.ctx(), call, engine.GivenAnswer{
			Answer: pull.Answer{
				Status: int(given.Status), ContentType: given.ContentType, RetryAfter: given.RetryAfter, Body: given.Body,
			},
			Seen: given.Seen,
		})
	})
}

// beatCall notes a heartbeat of the function that executes a step.
func (s *Server) beatCall(r *request) error {
	var beat api.BeatCallBody
	call := r.call()
	r.optionalBody(&beat)
	if n := len(beat.Progress); n > queue.MaxProgress {
		r.fail(badField("progress", "it has %d bytes; the limit is %d: keep more in the run's store", n, queue.MaxProgress))
	}
	return answerNothing(r, func() error {
		err := s.Runs.Beat(r.ctx(), call, beat.Progress)
		if errors.Is(err, queue.ErrTooSoon) {
			return &incoming.TooManyError{What: "heartbeats of the step", RetryAfter: queue.BeatPause}
		}
		return err
	})
}

// maxStreamWrite is how many bytes the chunks of one request have together.
const maxStreamWrite = 1 << 20

// writeStream writes what a function says in a stream of its run.
func (s *Server) writeStream(r *request) error {
	var body api.WriteStreamBody
	call := r.call()
	r.body(&body)
	chunks, err := linesOf(body.Chunks)
	r.fail(err)
	return answerNothing(r, func() error {
		return s.Runs.WriteStream(r.ctx(), call, engine.StreamWrite{
			Stream: body.Stream, Step: entities.StepID(body.Step), Attempt: body.Attempt, From: body.From, Chunks: chunks,
			Close: body.Close,
		})
	})
}

// linesOf returns values as they are stored: each as a line of JSON, so that the bytes of a stream are such lines.
func linesOf(values []json.RawMessage) (lines [][]byte, err error) {
	size := 0
	for i, v := range values {
		if err := strictjson.Check(v); err != nil {
			return nil, inField(fmt.Sprintf("chunks[%d]", i), err)
		}
		if size += len(v) + 1; size > maxStreamWrite {
			return nil, badField("chunks", "they have more than %d bytes: send several requests", maxStreamWrite)
		}
		var line bytes.Buffer
		if err := json.Compact(&line, v); err != nil {
			return nil, inField(fmt.Sprintf("chunks[%d]", i), err)
		}
		line.WriteByte('\n')
		lines = append(lines, line.Bytes())
	}
	return lines, nil
}
