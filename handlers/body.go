package handlers

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

const (
	// smallBody is how many bytes of each body need no memory of their project.
	smallBody = 64 << 10
	// A body is read into pieces of firstPiece bytes, then four times as many, up to largestPiece. So a sender cannot
	// make the server allocate memory by announcing a length.
	firstPiece   = 4 << 10
	largestPiece = 1 << 20
)

// bodyPace is how slowly a body may arrive: not more slowly than 4 kB/s for long, and with pauses of up to 30 s.
var bodyPace = share.Pace{Credit: 10 * time.Second, Most: 30 * time.Second, Rate: 4 << 10}

// errBodyTooSlow is returned when a body arrives more slowly than [bodyPace] allows.
var errBodyTooSlow = fmt.Errorf("the body arrives too slowly: send at least %d bytes a second", bodyPace.Rate)

// receive reads the body of a request into memory, and replaces it by what was read.
func (v *visit) receive(c echo.Context) error {
	r := c.Request()
	if r.ContentLength == 0 {
		return nil
	}
	if err := v.take(r.Context(), v.arriving, 1, requestFactor); err != nil {
		return err
	}
	v.arrives = true
	from := newPacedReader(c, r.Body, v.pace, v.now)
	defer from.close()
	var body pieces
	size, total := int64(firstPiece), int64(0)
	for {
		if r.ContentLength > 0 {
			size = min(size, r.ContentLength-total+1) // one more, to read the end
		}
		if err := v.reserve(r.Context(), total+size-1, r.ContentLength); err != nil {
			return err
		}
		piece := make([]byte, size)
		n, err := io.ReadFull(from, piece)
		total += int64(n)
		body = append(body, piece[:n])
		if from.ended {
			break
		}
		if err != nil {
			return fmt.Errorf("read body: %w", err)
		}
		size = min(4*size, largestPiece)
	}
	v.beginning = body[0]
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(&body), total, nil
	return nil
}

// pieces is a body in memory. Reading releases the pieces.
type pieces [][]byte

// Read implements [io.Reader].
func (p *pieces) Read(into []byte) (int, error) {
	for len(*p) > 0 && len((*p)[0]) == 0 {
		(*p)[0] = nil
		*p = (*p)[1:]
	}
	if len(*p) == 0 {
		return 0, io.EOF
	}
	n := copy(into, (*p)[0])
	(*p)[0] = (*p)[0][n:]
	return n, nil
}

// pacedReader is a body whose sender must keep a pace. Only the time of reading counts, not the time in which the
// server does not read.
type pacedReader struct {
	body  io.Reader
	pace  share.Pace
	now   func() time.Time
	timer *time.Timer
	ended bool // the body has been read to its end

	mu              sync.Mutex // guards what the timer uses
	tooSlow, closed bool
}

func newPacedReader(c echo.Context, body io.Reader, pace share.Pace, now func() time.Time) *pacedReader {
	r := &pacedReader{body: body, pace: pace, now: now}
	abort := incoming.AbortRead(c)
	r.timer = time.AfterFunc(math.MaxInt64, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.closed { // the connection may serve another request by now
			r.tooSlow = true
			abort()
		}
	})
	return r
}

// close ends the supervision of the sender.
func (r *pacedReader) close() {
	r.timer.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// Read implements [io.Reader]. It fails with [errBodyTooSlow].
func (r *pacedReader) Read(p []byte) (int, error) {
	start := r.now()
	r.timer.Reset(r.pace.Credit)
	n, err := r.body.Read(p)
	r.timer.Stop()
	r.pace.Received(r.now().Sub(start), n)
	r.ended = err == io.EOF
	if err != nil && !r.ended {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.tooSlow {
			err = errBodyTooSlow
		}
	}
	return n, err
}

// limitBody limits the size of bodies, and marks errors of reading them as the client's. A request that is answered
// before its body has been read is answered at once, and its connection is closed: net/http would wait for the body
// before the answer, without a time limit.
func limitBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		body := &limitedBody{ReadCloser: http.MaxBytesReader(c.Response().Writer, r.Body, maxBody)}
		announced := r.ContentLength
		r.Body = body
		c.Response().Before(func() {
			if announced != 0 && !body.ended {
				c.Response().Header().Set(echo.HeaderConnection, "close")
			}
		})
		if announced > maxBody {
			return &http.MaxBytesError{Limit: maxBody}
		}
		return next(c)
	}
}

// errBodyIncomplete is returned when a client disconnects while it sends a body, or violates HTTP.
var errBodyIncomplete = errors.New("the body is incomplete")

// limitedBody wraps read errors in errBodyIncomplete.
type limitedBody struct {
	io.ReadCloser

	ended bool // it has been read to its end
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = err == io.EOF //nolint:errorlint // EOF is never wrapped
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); err != nil && !b.ended && !tooLarge {
		err = fmt.Errorf("%w: %w", errBodyIncomplete, err)
	}
	return n, err
}
