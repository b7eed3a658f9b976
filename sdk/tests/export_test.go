package tests

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

type parcels struct {
	Customer string
	Items    []string
	SentAt   time.Time
}

var (
	export  = stepwell.NewWorkflow[parcels, []string]("export")
	pack    = stepwell.NewStep[string, string]("pack")
	confirm = stepwell.NewHook[string]("confirm")
)

// runExport has IDs that are made of texts, and a branch that depends on their equality.
func runExport(w *stepwell.Context, in parcels) ([]string, error) {
	note, err := stepwell.Do(w, "note", func(context.Context) (string, error) { return "for " + in.Customer, nil })
	if err != nil {
		return nil, err
	}
	packed, err := stepwell.MapBy(w, in.Items, func(item string) string { return item },
		func(w *stepwell.Context, item string) (string, error) { return pack.Run(w, item) })
	if err != nil {
		return nil, err
	}
	by, err := confirm.Open(w, stepwell.Token("confirm-"+in.Customer)).Receive(w)
	if err != nil {
		return nil, err
	}
	if by == in.Customer {
		w.Sleep(time.Millisecond)
	}
	return append(packed, note), nil
}

// TestExportedRunsReplay executes runs on the real server, exports them, and replays them with the code as it is and
// with a change.
func TestExportedRunsReplay(t *testing.T) {
	t.Parallel()
	app := stepwell.NewApp(stepwell.AppConfig{Name: "export", Unsigned: "a test in one process", Logger: slog.New(slog.DiscardHandler)})
	app.Register(export.Bind(runExport), pack.Bind(func(_ context.Context, item string) (string, error) { return "packed " + item, nil }))
	h, err := app.Handler()
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(h)
	t.Cleanup(listener.Close)
	s := newServer(t)
	s.admin(t, http.MethodPut, "/v1/deployments/export", map[string]any{"url": listener.URL}, nil)
	ids := []string{
		s.startExport(t, "ann@example.com", "ann@example.com"), s.startExport(t, "bob@example.com", "eve"),
		s.startExport(t, "kim@example.com", ""),
	}
	cmd := exec.Command(program, append([]string{"runs", "export"}, ids...)...)
	cmd.Env = []string{"STEPWELL_URL=" + s.url(), "STEPWELL_API_KEY=" + adminKey}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "runs.jsonl"), out, 0o600); err != nil {
		t.Fatal(err)
	}
	stepwelltest.Replay(t, dir, export.Bind(runExport))
	checkChangedReplay(t, out)
	s.checkGate(t, ids)
}

// changed is runExport with a step before the others.
func changed(w *stepwell.Context, in parcels) ([]string, error) {
	if _, err := pack.Run(w, "first"); err != nil {
		return nil, err
	}
	return runExport(w, in)
}

// checkChangedReplay checks that no exported run fits the changed code.
func checkChangedReplay(t *testing.T, exported []byte) {
	t.Helper()
	app := stepwell.NewApp(stepwell.AppConfig{Name: "export", Unsigned: "a test in one process", Logger: slog.New(slog.DiscardHandler)})
	app.Register(export.Bind(changed))
	for line := range strings.Lines(string(exported)) {
		var log stepwell.RunLog
		if err := json.Unmarshal([]byte(line), &log); err != nil {
			t.Fatal(err)
		}
		if err := app.Replay(t.Context(), log); !errors.As(err, new(*stepwell.ReplayError)) {
			t.Errorf("a changed workflow replays: %v", err)
		}
	}
}

// checkGate replays the runs on the server: the code passes as it is, the changed code does not, and nothing is written.
func (s *server) checkGate(t *testing.T, ids []string) {
	t.Helper()
	logs := func() (all []int64) {
		for _, id := range ids {
			var run struct{ LastSeq int64 }
			s.admin(t, http.MethodGet, "/v1/runs/"+id, nil, &run)
			all = append(all, run.LastSeq)
		}
		return all
	}
	before := logs()
	for name, c := range map[string]struct {
		fn   func(*stepwell.Context, parcels) ([]string, error)
		fits bool
	}{"as it is": {runExport, true}, "changed": {changed, false}} {
		app := stepwell.NewApp(stepwell.AppConfig{Name: "export", Unsigned: "a test in one process", Logger: slog.New(slog.DiscardHandler)})
		app.Register(export.Bind(c.fn), pack.Bind(func(context.Context, string) (string, error) {
			t.Error("a step is executed")
			return "", nil
		}))
		for _, id := range ids {
			log, err := export.Handle(s.client(t, "read"), id).Log(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := app.Replay(t.Context(), log); (err == nil) != c.fits {
				t.Errorf("%s, run %s: %v", name, id, err)
			}
		}
	}
	if after := logs(); !slices.Equal(before, after) {
		t.Errorf("the logs had %v events, and have %v", before, after)
	}
}

// startExport starts a run, and confirms it unless by is empty. It returns when the run has ended, or waits.
func (s *server) startExport(t *testing.T, customer, by string) string {
	t.Helper()
	var run struct{ ID, Status string }
	s.admin(t, http.MethodPost, "/v1/runs", map[string]any{
		"workflow": "export", "deployment": "export", "input": parcels{customer, []string{"a teapot", "the cup"}, time.Now()},
	}, &run)
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) { // the hook opens soon
		path := "/v1/runs/" + run.ID + "/hooks/confirm"
		if got, err := s.request(t.Context(), adminKey, http.MethodGet, path, nil, nil); err == nil && got.ok() {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("run %s does not open its hook", run.ID)
		}
	}
	if by == "" {
		return run.ID
	}
	s.admin(t, http.MethodPost, "/v1/hooks/confirm-"+customer+"/resume", map[string]any{"payload": by}, nil)
	s.admin(t, http.MethodGet, "/v1/runs/"+run.ID+"/wait?timeout=30s", nil, &run)
	if run.Status != "completed" {
		t.Fatalf("run %s is %s", run.ID, run.Status)
	}
	return run.ID
}
