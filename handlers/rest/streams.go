package rest

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

type streamJSON struct {
	Name      entities.StreamName `json:"name"`
	Chunks    int64               `json:"chunks"`
	CreatedAt timestamp           `json:"createdAt"`
	ClosedAt  *timestamp          `json:"closedAt,omitempty"`
}

func newStreamJSON(s store.StoredStream) streamJSON {
	return streamJSON{s.Name, s.Chunks, timestamp(s.CreatedAt), optionalTime(s.ClosedAt)}
}

// chunkJSON is the JSON form of a stream's chunk: text if it is UTF-8, otherwise bytes.
type chunkJSON struct {
	Index  int64   `json:"index"`
	Text   *string `json:"text,omitempty"`
	Base64 []byte  `json:"base64,omitempty"`
}

func newChunkJSON(c store.Chunk) chunkJSON {
	if utf8.Valid(c.Data) {
		text := string(c.Data)
		return chunkJSON{Index: c.Idx, Text: &text}
	}
	return chunkJSON{Index: c.Idx, Base64: c.Data}
}

func (s *Server) listStreams(r *request) error {
	run := r.run()
	return answerPage(r, newStreamJSON, func() ([]store.StoredStream, string, error) {
		streams, err := s.Streams.Of(r.ctx(), run.Project, run.ID)
		return streams, "", err
	})
}

// listChunks answers with a page of a stream's chunks. The cursor is the index of the next chunk.
func (s *Server) listChunks(r *request) error {
	page := r.page(oldestFirst)
	from := r.number("cursor", page.Cursor, "the index of a chunk")
	name := s.stream(r)
	if r.err != nil {
		return r.err
	}
	chunks, info, err := s.Streams.Chunks(r.ctx(), r.project(), name, from, page.Limit)
	if err != nil {
		return err
	}
	body := struct {
		list[chunkJSON]
		Closed bool `json:"closed"`
	}{list[chunkJSON]{Data: encodeAll(chunks, newChunkJSON)}, info.ClosedAt != nil}
	if n := len(chunks); n > 0 {
		from = chunks[n-1].Idx + 1
	}
	if from < info.Chunks {
		body.Cursor = strconv.FormatInt(from, 10)
	}
	return r.JSON(http.StatusOK, body)
}

// stream returns the name of the stream in the path. It fails with [entities.ErrStreamNotFound] if the run in the path
// has no such stream.
func (s *Server) stream(r *request) entities.StreamName {
	run, text := r.run(), r.pathText("name", "stream name")
	r.fail(entities.ValidateName("stream name", text))
	if r.err != nil {
		return ""
	}
	name := entities.StreamName(text)
	info, err := s.Streams.Info(r.ctx(), run.Project, name)
	if err == nil && info.RunID != run.ID {
		err = fmt.Errorf("run %s has no stream %q: %w", run.ID, name, entities.ErrStreamNotFound)
	}
	r.fail(err)
	return name
}

// tailStream streams the chunks as they are written, until the stream is closed: as bytes or, if the client accepts
// them, as server-sent events.
func (s *Server) tailStream(r *request) error {
	from, name := r.firstChunk(), s.stream(r)
	if r.err != nil {
		return r.err
	}
	ctx, cancel := context.WithCancel(r.ctx())
	defer cancel()
	defer context.AfterFunc(s.Draining, cancel)()

	w, mediaType := incoming.NewLiveWriter(ctx, r), echo.MIMEOctetStream
	defer w.Close()
	send := func(ch store.Chunk) error { return w.Send(ch.Data) }
	if strings.Contains(r.Request().Header.Get(echo.HeaderAccept), mimeEvents) {
		mediaType = mimeEvents
		send = func(ch store.Chunk) error {
			text, err := eventText(strconv.FormatInt(ch.Idx, 10), newChunkJSON(ch))
			if err != nil {
				return err
			}
			return w.Send(text)
		}
	}
	beginStream(w.Response, mediaType)
	w.Flush()
	err := s.Streams.Tail(ctx, r.project(), name, from, send)
	if err == nil && mediaType == mimeEvents {
		err = w.Send([]byte(endEvent))
	}
	if err != nil {
		s.abort(r, err)
	}
	return nil
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
