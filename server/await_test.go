package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/server/servertest"
)

// freeAddress returns an address of the loopback interface at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// forward accepts connections at the address, and connects them to the target.
func forward(t *testing.T, address, target string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				_ = in.Close()
				return
			}
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	}()
}

// TestServerWaitsForItsDatabase: a server that starts while the database is away says so, and starts when it is there.
func TestServerWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(testdb.New(t))
	if err != nil {
		t.Fatal(err)
	}
	database := freeAddress(t)
	dsn := url.URL{
		Scheme: "postgres", User: url.UserPassword(config.User, config.Password), Host: database, Path: config.Database,
		RawQuery: "sslmode=disable",
	}
	s := newServer(t, dsn.String(), RoleAPI)
	s.Listen = freeAddress(t)
	base := "http://" + s.Listen
	started := make(chan error, 1)
	go func() { started <- s.Start(t.Context()) }()
	var resp *http.Response
	until(t, "the server listens", func() bool {
		resp, err = servertest.Try(t, http.MethodGet, base+"/readyz", "")
		return err == nil
	})
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "waiting for the database") {
		t.Errorf("got %d %s from /readyz, want 503 that says what it waits for", resp.StatusCode, body)
	}
	if got := servertest.Request(t, http.MethodGet, base+"/healthz", ""); got.StatusCode != http.StatusOK {
		t.Errorf("got %d from /healthz, want 200", got.StatusCode)
	}
	refused := servertest.Request(t, http.MethodPost, base+"/v1/runs", "{}")
	var answer struct{ Error struct{ Code string } }
	if err := json.NewDecoder(refused.Body).Decode(&answer); err != nil || answer.Error.Code != "database_unavailable" ||
		refused.StatusCode != http.StatusServiceUnavailable || refused.Header.Get("Retry-After") == "" {
		t.Errorf("got %d %+v %v, want 503 database_unavailable with Retry-After", refused.StatusCode, answer, err)
	}

	forward(t, database, net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))))
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	defer s.Stop(context.Background())
	if got := servertest.Request(t, http.MethodGet, base+"/readyz", ""); got.StatusCode != http.StatusOK {
		t.Errorf("got %d from /readyz, want 200", got.StatusCode)
	}
}

// TestServerDoesNotWaitInVain: what does not change by itself ends the start, as its end does.
func TestServerDoesNotWaitInVain(t *testing.T) {
	t.Parallel()
	wrong := newServer(t, testdb.New(t)+"&dbname=missing", RoleAPI)
	if err := wrong.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("got %v, want that there is no such database", err)
	}
	away := newServer(t, "postgres://u@"+freeAddress(t)+"/d", RoleFunction)
	if err := away.Start(t.Context()); err == nil {
		t.Error("a server in function mode started without a database")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := newServer(t, "postgres://u@"+freeAddress(t)+"/d", RoleAPI)
	if err := ended.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was asked to stop", err)
	}
	taken := freeAddress(t)
	l, err := net.Listen("tcp", taken)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	second := newServer(t, "postgres://u@"+freeAddress(t)+"/d", RoleAPI)
	second.Listen = taken
	if err := second.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "STEPWELL_LISTEN") {
		t.Errorf("got %v, want that the address is taken", err)
	}
}

// TestStartGoesOnWhenTheDatabaseIsBack: what fails while a server starts is tried again if the database was away, and
// only then.
func TestStartGoesOnWhenTheDatabaseIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, "", RoleAll)
		other := errors.New("other")
		for _, want := range []error{nil, other} {
			answers := []error{&pgconn.PgError{Code: "57P03"}, &pgconn.ConnectError{}, want}
			calls := 0
			err := s.untilAvailable(t.Context(), func() error {
				calls++
				return answers[calls-1]
			})
			if !errors.Is(err, want) || calls != len(answers) {
				t.Errorf("got %v after %d calls, want %v after %d", err, calls, want, len(answers))
			}
		}
	})
}
