package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/server"
)

// database is the database that commands in this process use, with its runs ordered by ID.
type database struct {
	*pgxpool.Pool
	runs []entities.RunID
}

// newDatabase fills the empty database at DATABASE_URL with runs of one step each.
func newDatabase(t *testing.T, runs int) *database {
	t.Helper()
	pool := testdb.Connect(t, os.Getenv("DATABASE_URL"))
	d := &database{Pool: pool}
	for range runs {
		id := entities.RunID("wrun_" + ulid.Make().String())
		d.runs = append(d.runs, id)
		d.add(t, eventlog.Request{
			RunID: id, Type: entities.EventRunCreated, Payload: []byte("input"),
			Data: entities.EventData{DeploymentID: "shop", WorkflowName: "order"},
		})
		d.add(t, eventlog.Request{
			RunID: id, Type: entities.EventStepCreated, CorrelationID: "step_1", Payload: []byte("step input"),
			Data: entities.EventData{StepName: "charge"},
		})
	}
	slices.Sort(d.runs)
	return d
}

// add appends an event.
func (d *database) add(t *testing.T, r eventlog.Request) {
	t.Helper()
	r.SpecVersion = 3
	if _, err := eventlog.New(d.Pool, pg.NewHub(d.Pool, "test", slog.New(slog.DiscardHandler)), nil, time.Now).Append(t.Context(), entities.DefaultProject, r); err != nil {
		t.Fatal(err)
	}
}

func (d *database) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := d.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// wantOutput runs a command and compares its output and the first line of its error.
func wantOutput(t *testing.T, args []string, wantErr, want string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), args, &stdout, &stderr)
	got := ""
	if err != nil {
		got, _, _ = strings.Cut(err.Error(), "\n")
	}
	if got != wantErr {
		t.Errorf("%v: got error %q, want %q", args, got, wantErr)
	}
	if stdout.String() != want {
		t.Errorf("%v: got output\n%swant\n%s", args, &stdout, want)
	}
}

func TestVerifyAndRebuildCommands(t *testing.T) { // sets the environment
	t.Setenv("DATABASE_URL", testdb.New(t))
	d := newDatabase(t, 4)
	wantOutput(t, []string{"verify"}, "", "")
	d.exec(t, `UPDATE steps SET attempt = 2 WHERE run_id = ANY ($1)`, d.runs[1:])
	line := func(i int) string {
		return fmt.Sprintf("%s step step_1: Attempt: log says 0, row says 2\n", d.runs[i])
	}
	found := func(n int) string {
		return fmt.Sprintf("found %d differences; repair them with stepwell rebuild", n)
	}
	last := string(d.runs[3])
	wantOutput(t, []string{"verify"}, found(3), line(1)+line(2)+line(3))
	wantOutput(t, []string{"verify", "--run", last}, found(1), line(3))
	wantOutput(t, []string{"verify", "--run", string(d.runs[0])}, "", "")
	wantOutput(t, []string{"verify", "--after", string(d.runs[1])}, found(2), line(2)+line(3))
	wantOutput(t, []string{"verify", "--project", "default"}, found(3), line(1)+line(2)+line(3))
	wantOutput(t, []string{"verify", "--project", "other"}, "", "")
	wantOutput(t, []string{"verify", "--run", "wrun_1"}, "verify run wrun_1: read run wrun_1: run not found", "")

	wantOutput(t, []string{"rebuild", "--run", last}, "", last+" rebuilt\n")
	wantOutput(t, []string{"verify"}, found(2), line(1)+line(2))
	wantOutput(t, []string{"rebuild"}, "", fmt.Sprintf("%s rebuilt\n%s rebuilt\n", d.runs[1], d.runs[2]))
	wantOutput(t, []string{"verify"}, "", "")
	wantOutput(t, []string{"rebuild"}, "", "")

	d.exec(t, `UPDATE events SET seq = 3 WHERE run_id = $1 AND seq = 2`, last)
	missing := last + " event 3: the event before it is missing\n"
	wantOutput(t, []string{"rebuild"}, "1 differences cannot be repaired from the log", missing)
}

// TestRebuildStats counts a log of which the counts are wrong.
func TestRebuildStats(t *testing.T) { // sets the environment
	t.Setenv("DATABASE_URL", testdb.New(t))
	d := newDatabase(t, 3)
	d.exec(t, `INSERT INTO stats (width, project, workflow, metric, label, at, took, count)
		VALUES (60, 'default', 'order', 'run_created', 'shop', now() - interval '1 d', 0, 7)`)
	d.exec(t, `INSERT INTO projects (name) VALUES ('other')`)
	for _, args := range [][]string{{"rebuild", "--stats"}, {"rebuild", "--stats", "--project", "default"}} {
		wantOutput(t, args, "", "")
		var counted int
		if err := d.QueryRow(t.Context(), `SELECT sum(count) FROM stats WHERE metric = 'run_created' AND width = 60`).Scan(&counted); err != nil {
			t.Fatal(err)
		}
		if counted != 3 {
			t.Errorf("%v: %d runs are counted, want 3", args, counted)
		}
	}
	wantOutput(t, []string{"rebuild", "--stats", "--run", "wrun_1"}, errStatsOfRuns.Error(), "")
}

// TestInterruptedVerifyCanBeResumed: the error says after which run, and deleted runs are skipped.
func TestInterruptedVerifyCanBeResumed(t *testing.T) { // sets the environment
	t.Setenv("DATABASE_URL", testdb.New(t))
	d := newDatabase(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := 0
	var logged bytes.Buffer
	logger, err := defaults().newLogger(&logged)
	if err != nil {
		t.Fatal(err)
	}
	err = runFlags{}.forEach(ctx, upkeep.NewMaintainer(d.Pool, time.Now), logger, func(entities.RunID) error {
		if seen++; seen == 3 {
			cancel()
		}
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "--after "+string(d.runs[1])) {
		t.Errorf("got %v, want an error that says to resume after %s", err, d.runs[1])
	}
	// A run that is deleted meanwhile is no error.
	seen = 0
	err = runFlags{}.forEach(t.Context(), upkeep.NewMaintainer(d.Pool, time.Now), logger, func(entities.RunID) error {
		seen++
		return fmt.Errorf("verify: %w", entities.ErrRunNotFound)
	})
	if err != nil || seen != 3 || !strings.Contains(logged.String(), "msg=done runs=3") {
		t.Errorf("got %v after %d runs; log: %s", err, seen, &logged)
	}
}

func TestRetentionCommands(t *testing.T) { // sets the environment
	t.Setenv("DATABASE_URL", testdb.New(t))
	newDatabase(t, 0)
	header := "PROJECT  KEEP\n"
	wantOutput(t, []string{"retention", "list"}, "", header)
	wantOutput(t, []string{"retention", "set", "default", "720h"}, "", "retention of default: 720h0m0s\n")
	wantOutput(t, []string{"retention", "set", "audit", "forever"}, "", "retention of audit: forever\n")
	wantOutput(t, []string{"retention", "list"}, "", header+"audit    forever\ndefault  720h0m0s\n")
	wantOutput(t, []string{"retention", "set", "default", "a month"}, `"a month" is neither a duration such as 720h nor forever`, "")
	wantOutput(t, []string{"retention", "set", "default", "0s"}, "runs cannot be kept for 0s; the minimum is 1s", "")
	wantOutput(t, []string{"retention", "set", "default", "1ns"}, "runs cannot be kept for 1ns; the minimum is 1s", "")
	wantOutput(t, []string{"retention", "remove", "default"}, "", "")
	wantOutput(t, []string{"retention", "list"}, "", header+"audit    forever\n")
}

func TestServerDeletesExpiredRuns(t *testing.T) { // sets the environment
	t.Setenv("DATABASE_URL", testdb.New(t))
	d := newDatabase(t, 1)
	d.add(t, eventlog.Request{RunID: d.runs[0], Type: entities.EventRunCompleted})
	s := newServer(t, d.Config().ConnString(), server.RoleWorker)
	s.config.Retention = time.Nanosecond
	mustStart(t, s)
	d.waitUntilEmpty(t)
}

func TestExportImportAndShowCommands(t *testing.T) { // sets the environment
	t.Setenv("DATABASE_URL", testdb.New(t))
	d := newDatabase(t, 1)
	id := d.runs[0]
	t.Chdir(t.TempDir())
	name := string(id) + ".jsonl.zst"
	wantOutput(t, []string{"export", string(id), "alive"}, "", "alive: 2 events, 0 streams\n")
	d.add(t, eventlog.Request{RunID: id, Type: entities.EventRunCompleted, Payload: []byte("output")})
	d.exec(t, `UPDATE events SET created_at = '2026-03-01T12:00:00.5Z'`)
	wantOutput(t, []string{"export", string(id)}, "", name+": 3 events, 0 streams\n")
	log := fmt.Sprintf(`run %s of project default
1  2026-03-01T12:00:00.5Z  run_created            5 bytes
2  2026-03-01T12:00:00.5Z  step_created   step_1  10 bytes
3  2026-03-01T12:00:00.5Z  run_completed          6 bytes
`, id)
	wantOutput(t, []string{"show", name}, "", log)
	wantOutput(t, []string{"import", name},
		"import run "+string(id)+": conflict: the run or one of its streams already exists", "")
	d.exec(t, `DELETE FROM runs`)
	wantOutput(t, []string{"import", "alive"},
		"import run "+string(id)+": cannot import a run that has not ended", "")
	wantOutput(t, []string{"import", name}, "", string(id)+"\n")
	wantOutput(t, []string{"verify"}, "", "")
	wantOutput(t, []string{"import", "missing"}, "open missing: no such file or directory", "")
	wantOutput(t, []string{"export", "wrun_1"}, "export run wrun_1: read run wrun_1: run not found", "")
	wantOutput(t, []string{"export", "a/b"}, `run ID "a/b" has characters an ID may not have: want printable ones without spaces and slashes, and not U+FFFD`, "")
	file, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("cut", file[:0], 0o600); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, []string{"show", "cut"}, "the file is truncated: it has no end record", "")
	if entries, err := os.ReadDir("."); err != nil || len(entries) != 3 {
		t.Errorf("got files %v, error %v; want only those three", entries, err)
	}
}

// TestServerArchivesToFolder: runs are archived before they are deleted. Without the folder the server does not start.
func TestServerArchivesToFolder(t *testing.T) { // sets the environment
	t.Setenv("DATABASE_URL", testdb.New(t))
	d := newDatabase(t, 1)
	d.add(t, eventlog.Request{RunID: d.runs[0], Type: entities.EventRunCompleted})
	s := newServer(t, d.Config().ConnString(), server.RoleWorker)
	s.config.Retention, s.config.Archive = time.Nanosecond, filepath.Join(t.TempDir(), "missing")
	if err := s.start(t.Context()); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Fatalf("got %v, want an error about the missing folder", err)
	}
	s = newServer(t, d.Config().ConnString(), server.RoleWorker)
	s.config.Retention, s.config.Archive = time.Nanosecond, t.TempDir()
	mustStart(t, s)
	d.waitUntilEmpty(t)
	wantOutput(t, []string{"import", filepath.Join(s.config.Archive, "default", string(d.runs[0])+".jsonl.zst")}, "",
		string(d.runs[0])+"\n")
}

// TestServerArchivesToTheDatabase: a run is archived, shown and imported with nothing but Postgres. A server with another
// archive reads it, too.
func TestServerArchivesToTheDatabase(t *testing.T) { // sets the environment
	t.Setenv("DATABASE_URL", testdb.New(t))
	d := newDatabase(t, 1)
	d.add(t, eventlog.Request{RunID: d.runs[0], Type: entities.EventRunCompleted})
	s := newServer(t, d.Config().ConnString(), server.RoleWorker)
	s.config.Retention, s.config.Archive = time.Nanosecond, "postgres"
	mustStart(t, s)
	d.waitUntilEmpty(t)
	s.stop(t.Context())
	file := "postgres:default/" + string(d.runs[0])
	wantOutput(t, []string{"import", file}, "", string(d.runs[0])+"\n")
	wantOutput(t, []string{"show", "postgres:other/" + string(d.runs[0])},
		"read archive file: the archive has no file of the run", "")
	var shown, stderr bytes.Buffer
	if err := run(t.Context(), []string{"show", file}, &shown, &stderr); err != nil || !strings.Contains(shown.String(), "run_completed") {
		t.Errorf("show: got %v and\n%s", err, &shown)
	}
	s.config.Archive = t.TempDir()
	folder, err := s.archive(d.Pool)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := folder.Open(t.Context(), entities.DefaultProject, d.runs[0]); err != nil {
		t.Errorf("from a server with a folder: %v", err)
	}
}

// waitUntilEmpty waits until all runs are deleted.
func (d *database) waitUntilEmpty(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(waitLimit)
	for n := 1; n > 0; {
		if err := d.QueryRow(t.Context(), `SELECT count(*) FROM runs`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("a run still exists")
		}
	}
}
