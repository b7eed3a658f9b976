package ui

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// TestSignInsThatStallEnd sends a part of a sign-in and waits.
func TestSignInsThatStallEnd(t *testing.T) {
	t.Parallel()
	s := check.Value(New(Options{Files: fstest.MapFS{"index.html": {}}, Now: time.Now}))(t)
	s.bodyTimeout = time.Millisecond
	e := echo.New()
	s.Register(e, auth.New(auth.Options{Now: time.Now}))
	web := httptest.NewServer(e)
	defer web.Close()
	conn, err := net.Dial("tcp", web.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "POST /ui/-/session HTTP/1.1\r\nHost: a\r\nSec-Fetch-Site: same-origin\r\nStepwell-UI: 1\r\n"+
		"Content-Type: application/json\r\nContent-Length: 40\r\n\r\n{\"key\":")
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	resp := check.Value(http.ReadResponse(bufio.NewReader(conn), nil))(t)
	if _ = resp.Body.Close(); resp.StatusCode < http.StatusBadRequest {
		t.Errorf("got %d", resp.StatusCode)
	}
}
