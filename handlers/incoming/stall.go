package incoming

import (
	"context"
	"time"

	"github.com/labstack/echo/v4"
)

// writeTimeout limits how long a client that follows something may take to accept one write. A client that is slower is
// disconnected, so that what is written for it does not stay in memory.
const writeTimeout = 30 * time.Second

// LiveWriter writes an answer piece by piece, as soon as there is one. It fails when the client stops reading.
type LiveWriter struct {
	*echo.Response

	timeout *time.Timer
	unhook  func() bool
}

// NewLiveWriter returns a writer for the response of the request. Its writes fail when the context ends. The caller
// must close it.
func NewLiveWriter(ctx context.Context, c echo.Context) *LiveWriter {
	abort := abortWrite(c)
	w := &LiveWriter{Response: c.Response(), timeout: time.AfterFunc(writeTimeout, abort)}
	w.timeout.Stop()
	w.unhook = context.AfterFunc(ctx, abort)
	return w
}

// Close ends the use of the writer.
func (w *LiveWriter) Close() {
	w.unhook()
	w.timeout.Stop()
}

// Send writes data and sends it at once.
func (w *LiveWriter) Send(data []byte) error {
	w.timeout.Reset(writeTimeout)
	defer w.timeout.Stop()
	if _, err := w.Write(data); err != nil {
		return err
	}
	w.Flush()
	return nil
}
