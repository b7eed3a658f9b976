package stepwelltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// Replay replays exported runs with the given workflows, so that a change that does not fit the runs in progress fails
// before it is deployed:
//
//	func TestOrdersInFlight(t *testing.T) {
//		stepwelltest.Replay(t, "testdata/runs", worker.Definitions()...)
//	}
//
// The files in the folder, and in those below it, are those of "stepwell runs export": one run per line. Each run is a
// subtest. Steps are not executed, so they need no functions. It fails the test if there is no run.
func Replay(t *testing.T, dir string, definitions ...stepwell.Definition) {
	t.Helper()
	app := stepwell.NewApp(stepwell.AppConfig{Name: "replay", Unsigned: "a replay", Logger: slog.New(slog.DiscardHandler)})
	app.Register(definitions...)
	if _, err := app.Handler(); err != nil {
		t.Fatal(err)
	}
	runs := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		logs, err := readLogs(path)
		for i, log := range logs {
			runs++
			t.Run(fmt.Sprintf("%s:%d", entry.Name(), i+1), func(t *testing.T) {
				if err := app.Replay(t.Context(), log); err != nil {
					t.Error(err)
				}
			})
		}
		return err
	})
	switch {
	case err != nil:
		t.Error(err)
	case runs == 0:
		t.Errorf("there are no runs in %s: write some with stepwell runs export", dir)
	}
}

// readLogs reads the runs of a file.
func readLogs(path string) (logs []stepwell.RunLog, err error) {
	file, err := os.Open(path) //nolint:gosec // the test names it
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for decoder := json.NewDecoder(file); ; {
		var log stepwell.RunLog
		err := decoder.Decode(&log)
		if errors.Is(err, io.EOF) {
			return logs, nil
		}
		if err != nil {
			return logs, fmt.Errorf("read run %d of %s: %w", len(logs)+1, path, err)
		}
		logs = append(logs, log)
	}
}
