package wire

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities/codec"
)

const (
	mimeCBOR   = "application/cbor"
	mimeFrames = "application/vnd.workflow.v4-frames"
)

// answer sends v as CBOR with status 200.
func answer(c echo.Context, v any) error {
	body, err := codec.Marshal(v)
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, mimeCBOR, body)
}

// cutOff handles an error in the middle of a streamed answer. Once the header is sent, the status cannot change, and
// clients recognize an incomplete answer only by a broken connection.
func (s *Server) cutOff(c echo.Context, err error) error {
	if err == nil || !c.Response().Committed {
		return err
	}
	s.Logger.DebugContext(c.Request().Context(), "answer cut off", "path", c.Path(), "error", err)
	panic(http.ErrAbortHandler)
}

// listing is one page of a CBOR list (§2.4). On the last page the cursor is null, not missing.
type listing[T any] struct {
	Data    []T     `cbor:"data"`
	Cursor  *string `cbor:"cursor"`
	HasMore bool    `cbor:"hasMore"`
}

func newListing[T any](data []T, next string) listing[T] {
	l := listing[T]{Data: data}
	if next != "" {
		l.Cursor, l.HasMore = &next, true
	}
	return l
}
