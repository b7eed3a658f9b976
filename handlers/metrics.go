package handlers

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/queue"
)

// metrics answers with the gauges in the text format of Prometheus. They are of the whole database, so any
// server tells the same.
func metrics(q *queue.Queue) echo.HandlerFunc {
	return func(c echo.Context) error {
		g, err := q.Gauges(c.Request().Context())
		if err != nil {
			return err
		}
		var b strings.Builder
		for _, m := range []struct {
			name, help string
			value      int64
		}{
			{"stepwell_runs_stranded", "Runs that have no way to move, as far as the sweeper has seen.", g.StrandedRuns},
			{"stepwell_messages_parked", "Messages that failed too often, to be retried or discarded.", g.ParkedMessages},
		} {
			fmt.Fprintf(&b, "# HELP %[1]s %[2]s\n# TYPE %[1]s gauge\n%[1]s %[3]d\n", m.name, m.help, m.value)
		}
		return c.Blob(http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", []byte(b.String()))
	}
}
