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

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// mimeEvents is the type of server-sent events.
const mimeEvents = "text/event-stream"

// stream is the JSON form of a stream.
type stream struct {
	Name      entities.StreamName `json:"name"`
	Chunks    int64               `json:"chunks"`
	CreatedAt timestamp           `json:"createdAt"`
	ClosedAt  *timestamp          `json:"closedAt,omitempty"`
}

// chunk is the JSON form of a stream's chunk: its text or, when it is none, its bytes.
type chunk struct {
	Index  int64   `json:"index"`
	Text   *string `json:"text,omitempty"`
	Base64 []byte  `json:"base64,omitempty"`
}

func newChunk(c store.Chunk) chunk {
	if utf8.Valid(c.Data) {
		text := string(c.Data)
		return chunk{Index: c.Idx, Text: &text}
	}
	return chunk{Index: c.Idx, Base64: c.Data}
}

func (s *Server) listStreams(c echo.Context) error {
	r, err := s.theRun(c)
	if err != nil {
		return err
	}
	streams, err := s.Streams.Of(c.Request().Context(), r.Project, r.ID)
	if err != nil {
		return err
	}
	return answerList(c, streams, "", func(s store.StoredStream) stream {
		return stream{s.Name, s.Chunks, timestamp(s.CreatedAt), optionalTime(s.ClosedAt)}
	})
}

// listChunks answers with a page of what has been written to a stream.
func (s *Server) listChunks(c echo.Context) error {
	p, err := page(c, oldestFirst)
	if err != nil {
		return err
	}
	from, err := chunkIndex("cursor", p.Cursor)
	if err != nil {
		return err
	}
	_, name, err := s.theStream(c)
	if err != nil {
		return err
	}
	chunks, of, err := s.Streams.Chunks(c.Request().Context(), auth.Project(c), name, from, p.Limit)
	if err != nil {
		return err
	}
	body := struct {
		list[chunk]
		Closed bool `json:"closed"`
	}{list[chunk]{Data: make([]chunk, len(chunks))}, of.ClosedAt != nil}
	next := from
	for i, ch := range chunks {
		body.Data[i], next = newChunk(ch), ch.Idx+1
	}
	if next < of.Chunks {
		body.Cursor = strconv.FormatInt(next, 10)
	}
	return c.JSON(http.StatusOK, body)
}

// chunkIndex reads the index of a chunk, 0 when it is missing.
func chunkIndex(name, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, badParam(name, "%q is not the index of a chunk", s)
	}
	return n, nil
}

// theStream is the run and the stream that the path names. It fails with [entities.ErrStreamNotFound] on one that
// nobody has written for that run.
func (s *Server) theStream(c echo.Context) (entities.Run, entities.StreamName, error) {
	r, err := s.theRun(c)
	if err != nil {
		return r, "", err
	}
	text, err := pathText(c, "name", "stream name")
	if err != nil {
		return r, "", err
	}
	name := entities.StreamName(text)
	if err := entities.ValidateName("stream name", text); err != nil {
		return r, name, err
	}
	info, err := s.Streams.Info(c.Request().Context(), r.Project, name)
	if err == nil && info.RunID != r.ID {
		err = fmt.Errorf("run %s has no stream %q: %w", r.ID, name, entities.ErrStreamNotFound)
	}
	return r, name, err
}

// tailStream answers with a stream as it is written, until it is closed: its bytes or, for those who accept them,
// events. Once the answer has begun, the only way to say that it is not complete is to break the connection.
func (s *Server) tailStream(c echo.Context) error {
	from, err := tailStart(c)
	if err != nil {
		return err
	}
	r, name, err := s.theStream(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.Request().Context())
	defer cancel()
	defer context.AfterFunc(s.Draining, cancel)()

	w, kind, write := c.Response(), echo.MIMEOctetStream, writeBytes
	if strings.Contains(c.Request().Header.Get(echo.HeaderAccept), mimeEvents) {
		kind, write = mimeEvents, writeEvent
	}
	w.Header().Set(echo.HeaderContentType, kind)
	w.Header().Set(echo.HeaderCacheControl, "no-store")
	w.WriteHeader(http.StatusOK)
	w.Flush()
	err = s.Streams.Tail(ctx, r.Project, name, from, func(ch store.Chunk) error {
		if err := write(w, ch); err != nil {
			return err
		}
		w.Flush()
		return nil
	})
	if err == nil && kind == mimeEvents {
		_, err = fmt.Fprint(w, "event: end\ndata: {}\n\n")
	}
	if err != nil {
		s.Logger.DebugContext(ctx, "answer cut off", "path", c.Path(), "error", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

// tailStart is where to begin: at "from", which counts from the end when it is negative, or after the event that
// the reader had last.
func tailStart(c echo.Context) (int64, error) {
	if last := c.Request().Header.Get("Last-Event-ID"); last != "" {
		n, err := strconv.ParseInt(last, 10, 64)
		if err != nil || n < 0 {
			return 0, entities.Invalid("Last-Event-ID %q is not one this stream gave out", last)
		}
		return n + 1, nil
	}
	s := c.QueryParam("from")
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, badParam("from", "%q is not a number", s)
	}
	return n, nil
}

func writeBytes(w *echo.Response, ch store.Chunk) error {
	_, err := w.Write(ch.Data)
	return err
}

func writeEvent(w *echo.Response, ch store.Chunk) error {
	data, err := json.Marshal(newChunk(ch))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "id: %d\ndata: %s\n\n", ch.Idx, data)
	return err
}
