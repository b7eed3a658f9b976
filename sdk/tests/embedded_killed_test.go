package tests

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/embedded"
	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// pointVariable makes this program embed an app and hang at a point; see [hangAt].
const pointVariable = "SDK_TESTS_POINT"

// ledgerOfRelay has the path of the file of [relayApp].
const ledgerOfRelay = "SDK_TESTS_RELAY"

// relay has four steps, each of which returns who has executed it.
var relay = stepwell.NewWorkflow[int, []string]("relay")

// relayApp is the app of a process, which appends to the file what it executes.
func relayApp(process, path string) *stepwell.App {
	app := stepwell.NewApp(stepwell.AppConfig{Name: "relay", Build: "1"})
	app.Register(relay.Bind(func(w *stepwell.Context, _ int) (by []string, _ error) {
		for i := range 4 {
			one, err := stepwell.Do(w, fmt.Sprint("step ", i), func(context.Context) (string, error) {
				return process, appendLine(path, fmt.Sprint(process, " ", i))
			})
			if err != nil {
				return nil, err
			}
			by = append(by, one)
		}
		return by, nil
	}))
	return app
}

func appendLine(path, line string) error {
	file, err := openLedger(path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, line)
	return errors.Join(err, file.Close())
}

// hangingApp hangs for ever where a step has ended in memory, and its end is on its way to the disk.
type hangingApp struct {
	*stepwell.App

	// point is "before" the commands with the end of a step are carried out, "during" that, or "after" it, so that the
	// app does not get the answer; or "answer": the call has ended, and the server does not get its answer. Exchange is
	// which one.
	point    string
	exchange int64
	number   atomic.Int64
	schema   string
}

type hangingTransport struct {
	http.RoundTripper

	next exchanger
	app  *hangingApp
}

func (a *hangingApp) Embed(server *http.Client) (http.Handler, error) {
	next := server.Transport
	h, err := a.App.Embed(&http.Client{Transport: hangingTransport{next, next.(exchanger), a}})
	if a.point != "answer" {
		return h, err
	}
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(httptest.NewRecorder(), r)
		hang()
	}), err
}

func (t hangingTransport) Exchange(
	ctx context.Context, run, call string, after int64, commands []byte,
) ([]byte, error) {
	if t.app.number.Add(1) != t.app.exchange {
		return t.next.Exchange(ctx, run, call, after, commands)
	}
	switch t.app.point {
	case "before":
		hang()
	case "during":
		if err := t.app.lock(ctx, run); err != nil {
			return nil, err
		}
	}
	answer, err := t.next.Exchange(ctx, run, call, after, commands)
	if err == nil && t.app.point == "after" {
		hang()
	}
	return answer, err
}

// lock locks the run's row, and says that the point is reached when somebody waits for it.
func (a *hangingApp) lock(ctx context.Context, run string) error {
	ctx = context.WithoutCancel(ctx)
	db, err := pgx.Connect(ctx, os.Getenv("SDK_TESTS_DATABASE"))
	if err != nil {
		return err
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	runs := pgx.Identifier{a.schema, "runs"}.Sanitize()
	if _, err := tx.Exec(ctx, "SELECT FROM "+runs+" WHERE id = $1 FOR UPDATE", run); err != nil {
		return err
	}
	go func() {
		for waiting := false; !waiting && err == nil; {
			err = tx.QueryRow(ctx, `
				SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))`).
				Scan(&waiting)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		hang()
	}()
	return nil
}

// hang says that the point is reached, and never returns.
func hang() {
	fmt.Println("at the point")
	select {}
}

// hangAt embeds the app and starts a run of which this process hangs at a point: its name, and the number of the
// exchange of commands.
func hangAt(schema, point string) error {
	a := &hangingApp{App: relayApp("dead", os.Getenv(ledgerOfRelay)), schema: schema}
	if _, err := fmt.Sscan(point, &a.point, &a.exchange); err != nil {
		return err
	}
	s, err := embedded.Start(context.Background(), embedded.Config{
		DatabaseURL: os.Getenv("SDK_TESTS_DATABASE"), Schema: schema,
	}, a)
	if err != nil {
		return err
	}
	c, err := stepwell.NewClient(stepwell.ClientConfig{URL: embedded.URL, HTTP: s.Client()})
	if err != nil {
		return err
	}
	if _, err := relay.Start(context.Background(), c, 1, stepwell.Once("relay")); err != nil {
		return err
	}
	select {}
}

// TestEmbeddedIsKilledBetweenAStepAndTheDisk: the process is killed when a step has ended in memory, and its end is not
// yet on disk, on its way there, or just there. The process that goes on executes what was not on disk, and nothing else.
func TestEmbeddedIsKilledBetweenAStepAndTheDisk(t *testing.T) {
	t.Parallel()
	for point, kept := range map[string][]int{ // how many results of the dead process are
		"before 1": {0}, "during 1": {0, 1}, "after 1": {1},
		"before 3": {2}, "during 3": {2, 3}, "after 3": {3},
		"answer 0": {3},
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			schema, path := newSchema(), filepath.Join(t.TempDir(), "ledger")
			child, _, err := startProcess(exec.Command(os.Args[0]), regexp.MustCompile(`(at the point)`),
				pointVariable+"="+point, embeddedVariable+"="+schema, ledgerOfRelay+"="+path, "SDK_TESTS_DATABASE="+databaseURL)
			if err != nil {
				t.Fatal(err)
			}
			if err := child.stop(syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			ended, _ := onDisk(t, t.Context(), schema)
			c := embed(t, schema, relayApp("heir", path))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			run, err := relay.Start(ctx, c, 1, stepwell.Once("relay"))
			if err != nil {
				t.Fatal(err)
			}
			by, err := run.Wait(ctx)
			if err != nil || len(by) != 4 {
				t.Fatalf("got %v and %v", by, err)
			}
			of := max(0, slices.Index(by, "heir"))
			if !slices.Contains(kept, of) || of < ended {
				t.Errorf("the results are of %v; of the dead process's, %d were seen on disk, and want one of %v", by, ended, kept)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			executed := 4
			if point != "answer 0" {
				executed, _ = strconv.Atoi(strings.Fields(point)[1])
			}
			want := ""
			for i := range executed {
				want += fmt.Sprintln("dead", i)
			}
			for i := of; i < 4; i++ {
				want += fmt.Sprintln("heir", i)
			}
			if string(text) != want {
				t.Errorf("executed were\n%s, want\n%s", text, want)
			}
			verify := exec.Command(program, "verify")
			verify.Env = append(os.Environ(), "DATABASE_URL="+databaseURL, "STEPWELL_SCHEMA="+schema)
			if out, err := verify.CombinedOutput(); err != nil {
				t.Errorf("verify: %v\n%s", err, out)
			}
		})
	}
}
