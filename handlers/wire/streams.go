package wire

import (
	"context"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	chunkPage = 100
	// maxIndex is the greatest integer that JavaScript clients represent exactly.
	maxIndex = 1 << 53
)

func (r *request) streamName() entities.StreamName { return entities.StreamName(r.param("name")) }

// writeStream is endpoint 12: it appends chunks to a stream, or closes it. Clients retry with an empty body by mistake,
// so a request that has no chunks and does not close the stream is ignored (§1.6).
func (s *Server) writeStream(r *request) error {
	runID, name, chunks := r.runID(), r.streamName(), r.chunks()
	if r.err != nil {
		return r.err
	}
	if len(chunks) > 0 {
		if err := s.Streams.Write(r.ctx(), r.project(), runID, name, chunks); err != nil {
			return err
		}
	}
	if r.Request().Header.Get("X-Stream-Done") == "true" {
		if err := s.Streams.Close(r.ctx(), r.project(), runID, name); err != nil {
			return err
		}
	}
	return r.NoContent(http.StatusNoContent)
}

// chunks reads the chunks in the body.
func (r *request) chunks() [][]byte {
	if r.err != nil {
		return nil
	}
	if r.Request().Header.Get("X-Stream-Multi") == "true" {
		chunks, err := codec.ReadChunks(r.Request().Body)
		r.fail(err)
		return chunks
	}
	if body := r.bytes(); len(body) > 0 {
		return [][]byte{body}
	}
	return nil
}

// tailStream is endpoint 13: it sends the bytes of a stream as they are written, until it is closed. The header is sent
// at once, because a stream may be silent for long.
func (s *Server) tailStream(r *request) error {
	name, from := r.streamName(), r.startIndex()
	if r.err != nil {
		return r.err
	}
	ctx, cancel := context.WithCancel(r.ctx())
	defer cancel()
	defer context.AfterFunc(s.Draining, cancel)()

	w := incoming.NewLiveWriter(ctx, r)
	defer w.Close()
	w.Header().Set(echo.HeaderContentType, echo.MIMEOctetStream)
	w.WriteHeader(http.StatusOK)
	w.Flush()
	err := s.Streams.Tail(ctx, r.project(), name, from, func(chunk store.Chunk) error { return w.Send(chunk.Data) })
	return s.cutOff(r, err)
}

func (r *request) startIndex() int64 {
	value := r.QueryParam("startIndex")
	if value == "" {
		return 0
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		r.fail(entities.Invalid("startIndex %q is not a number", value))
	}
	return n
}

// chunk is the wire form of a chunk of a stream.
type chunk struct {
	Index codec.Int   `cbor:"index"`
	Data  codec.Bytes `cbor:"data"`
}

// chunkListing is a page of a stream. The cursor is null if there are no more chunks yet; until the stream is done,
// more may follow.
type chunkListing struct {
	listing[chunk]
	Done bool `cbor:"done"`
}

// listChunks is endpoint 14: a page of chunks. The cursor is the index of the next chunk.
func (s *Server) listChunks(r *request) error {
	name, page, from := r.streamName(), r.page(chunkPage, oldestFirst), int64(0)
	if page.Cursor != "" {
		var err error
		if from, err = strconv.ParseInt(page.Cursor, 10, 64); err != nil || from < 0 || from > maxIndex {
			r.fail(&pg.CursorError{Cursor: page.Cursor})
		}
	}
	if r.err != nil {
		return r.err
	}
	chunks, stream, err := s.Streams.Chunks(r.ctx(), r.project(), name, from, page.Limit)
	if err != nil {
		return err
	}
	data, cursor := make([]chunk, len(chunks)), ""
	for i, ch := range chunks {
		data[i] = chunk{Index: codec.Int(ch.Idx), Data: ch.Data}
		from = ch.Idx + 1
	}
	if from < stream.Chunks {
		cursor = strconv.FormatInt(from, 10)
	}
	return r.send(chunkListing{newListing(data, cursor), stream.ClosedAt != nil})
}

// streamInfo is endpoint 15: the length of a stream, and whether it is closed.
func (s *Server) streamInfo(r *request) error {
	type info struct {
		TailIndex codec.Int `cbor:"tailIndex"`
		Done      bool      `cbor:"done"`
	}
	name := r.streamName()
	return answer(r, func() (info, error) {
		stream, err := s.Streams.Info(r.ctx(), r.project(), name)
		return info{codec.Int(stream.Chunks - 1), stream.ClosedAt != nil}, err
	})
}

// listStreams is endpoint 16: the names of the streams of a run. It is the only list in JSON.
func (s *Server) listStreams(r *request) error {
	runID := r.runID()
	if r.err != nil {
		return r.err
	}
	names, err := s.Streams.List(r.ctx(), r.project(), runID)
	if err != nil {
		return err
	}
	if names == nil {
		names = []entities.StreamName{}
	}
	return r.JSON(http.StatusOK, names)
}
