package wire

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

const (
	chunkPage = 100
	// maxIndex is the greatest integer that JavaScript clients represent exactly.
	maxIndex = 1 << 53
)

func streamParam(c echo.Context) (entities.StreamName, error) {
	name, err := param(c, "name")
	return entities.StreamName(name), err
}

// writeStream is endpoint 12: it appends chunks to a stream, or closes it. Clients retry with an empty body by mistake,
// so a request that has no chunks and does not close the stream is ignored (§1.6).
func (s *Server) writeStream(c echo.Context) error {
	runID, err := runParam(c)
	if err != nil {
		return err
	}
	name, err := streamParam(c)
	if err != nil {
		return err
	}
	chunks, err := readChunks(c.Request())
	if err != nil {
		return err
	}
	ctx, project := c.Request().Context(), auth.Project(c)
	if len(chunks) > 0 {
		if err := s.Streams.Write(ctx, project, runID, name, chunks); err != nil {
			return err
		}
	}
	if c.Request().Header.Get("X-Stream-Done") == "true" {
		if err := s.Streams.Close(ctx, project, runID, name); err != nil {
			return err
		}
	}
	return c.NoContent(http.StatusNoContent)
}

func readChunks(r *http.Request) ([][]byte, error) {
	if r.Header.Get("X-Stream-Multi") == "true" {
		return codec.ReadChunks(r.Body)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	if len(body) == 0 {
		return nil, nil
	}
	return [][]byte{body}, nil
}

// tailStream is endpoint 13: it sends the bytes of a stream as they are written, until it is closed. The header is sent
// at once, because a stream may be silent for long.
func (s *Server) tailStream(c echo.Context) error {
	name, err := streamParam(c)
	if err != nil {
		return err
	}
	from, err := startIndex(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.Request().Context())
	defer cancel()
	defer context.AfterFunc(s.Draining, cancel)()

	w := incoming.NewLiveWriter(ctx, c)
	defer w.Close()
	w.Header().Set(echo.HeaderContentType, echo.MIMEOctetStream)
	w.WriteHeader(http.StatusOK)
	w.Flush()
	err = s.Streams.Tail(ctx, auth.Project(c), name, from, func(chunk store.Chunk) error { return w.Send(chunk.Data) })
	return s.cutOff(c, err)
}

func startIndex(c echo.Context) (int64, error) {
	value := c.QueryParam("startIndex")
	if value == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return 0, entities.Invalid("startIndex %q is not a number", value)
	}
	return n, nil
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
func (s *Server) listChunks(c echo.Context) error {
	name, err := streamParam(c)
	if err != nil {
		return err
	}
	p, err := page(c, chunkPage, "asc")
	if err != nil {
		return err
	}
	from := int64(0)
	if p.Cursor != "" {
		if from, err = strconv.ParseInt(p.Cursor, 10, 64); err != nil || from < 0 || from > maxIndex {
			return &pg.CursorError{Cursor: p.Cursor}
		}
	}
	chunks, stream, err := s.Streams.Chunks(c.Request().Context(), auth.Project(c), name, from, p.Limit)
	if err != nil {
		return err
	}
	data, next := make([]chunk, len(chunks)), from
	for i, ch := range chunks {
		data[i] = chunk{Index: codec.Int(ch.Idx), Data: ch.Data}
		next = ch.Idx + 1
	}
	cursor := ""
	if next < stream.Chunks {
		cursor = strconv.FormatInt(next, 10)
	}
	return answer(c, chunkListing{newListing(data, cursor), stream.ClosedAt != nil})
}

// streamInfo is endpoint 15: the length of a stream, and whether it is closed.
func (s *Server) streamInfo(c echo.Context) error {
	name, err := streamParam(c)
	if err != nil {
		return err
	}
	stream, err := s.Streams.Info(c.Request().Context(), auth.Project(c), name)
	if err != nil {
		return err
	}
	return answer(c, struct {
		TailIndex codec.Int `cbor:"tailIndex"`
		Done      bool      `cbor:"done"`
	}{codec.Int(stream.Chunks - 1), stream.ClosedAt != nil})
}

// listStreams is endpoint 16: the names of the streams of a run. It is the only list in JSON.
func (s *Server) listStreams(c echo.Context) error {
	runID, err := runParam(c)
	if err != nil {
		return err
	}
	names, err := s.Streams.List(c.Request().Context(), auth.Project(c), runID)
	if err != nil {
		return err
	}
	if names == nil {
		names = []entities.StreamName{}
	}
	return c.JSON(http.StatusOK, names)
}
