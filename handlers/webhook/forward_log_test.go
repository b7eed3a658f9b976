package webhook_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestResponsesOfAppsAreNotLogged checks invalid HTTP responses, which errors of the transport quote.
func TestResponsesOfAppsAreNotLogged(t *testing.T) {
	t.Parallel()
	for name, said := range map[string]string{
		"no HTTP":          "classified\r\n\r\n",
		"no status":        "HTTP/1.1 classified\r\n\r\n",
		"no header":        "HTTP/1.1 200 OK\r\nclassified\r\n\r\n",
		"no length":        "HTTP/1.1 200 OK\r\nContent-Length: classified\r\n\r\n",
		"no encoding":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: classified\r\n\r\n",
		"HTTP but no more": "HTTP/1.1 200",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newTestServer(t)
			d.app(t, "T", func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(conn, said)
				_ = conn.Close()
			})
			wantRejected(t, d.call("POST", "/hooks/T", "x"), http.StatusBadGateway, "app_unreachable")
			if text := d.logged.String(); strings.Contains(text, "classified") || !strings.Contains(text, "error=") {
				t.Errorf("logged: %s", text)
			}
		})
	}
}
