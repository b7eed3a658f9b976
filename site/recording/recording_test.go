package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/site/cast"
)

// images has what is committed.
const images = "../../docs/images"

// TestRecordingShowsWhatHappened plays the scene, and compares what is shown with the log of the run.
func TestRecordingShowsWhatHappened(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a server with a Postgres, and takes some seconds")
	}
	t.Parallel()
	s, err := play(t.Context(), "../..", 0)
	if err != nil {
		t.Fatal(err)
	}
	showsTheScene(t, s.recording)
	if want := shownLog(t, s.recording); !slices.Equal(lines(s.log), want) {
		t.Errorf("the log is\n%s\nand shown is\n%s", strings.Join(lines(s.log), "\n"), strings.Join(want, "\n"))
	}
	killed := s.began.Add(at(t, s.recording, " Killed "))
	for _, e := range s.log {
		before := e.CorrelationID == "charge" || e.CorrelationID == "pack" || e.Type == "wait_created"
		after := e.CorrelationID == "ship" || e.Type == "wait_completed" || e.Type == "run_completed"
		if before && !e.CreatedAt.Before(killed) || after && !e.CreatedAt.After(killed) {
			t.Errorf("the kill was at %s, and this at %s: %s of %s", killed, e.CreatedAt, e.Type, e.CorrelationID)
		}
	}
	folder := t.TempDir()
	if err := save(s.recording, folder); err != nil {
		t.Fatal(err)
	}
	pictureIsOfRecording(t, folder)
}

// TestCommittedRecording checks what `make recording` has written.
func TestCommittedRecording(t *testing.T) {
	t.Parallel()
	showsTheScene(t, pictureIsOfRecording(t, images))
}

// showsTheScene checks the sequence: two steps, the kill, the third step, and a log in which each step began and ended
// once.
func showsTheScene(t *testing.T, r cast.Recording) {
	t.Helper()
	scene := []string{
		string(order), "$ python3 -u order.py", "$ run=$(stepwell runs start order", "  charged the card\n", "  packed a teapot\n",
		"$ kill -9 $server $app", "Killed                  stepwell dev", "Killed                  python3 -u order.py",
		"$ stepwell dev >> log", "$ python3 -u order.py", "  shipped the teapot\n", "$ stepwell runs events $run",
	}
	rest := r.Text()
	for _, text := range scene {
		_, after, found := strings.Cut(rest, text)
		if !found {
			t.Fatalf("this does not follow: %q; it shows:\n%s", text, r.Text())
		}
		rest = after
	}
	log := strings.Join(shownLog(t, r), "\n") + "\n"
	for _, step := range []string{"charge", "pack", "ship"} {
		for _, kind := range []string{"step_created", "step_started", "step_completed"} {
			if n := strings.Count(log, kind+" "+step+"\n"); n != 1 {
				t.Errorf("the log has %s of %s %d times", kind, step, n)
			}
		}
	}
	if !strings.HasSuffix(log, "run_completed\n") {
		t.Errorf("the run did not complete:\n%s", log)
	}
	for _, did := range []string{"  charged the card\n", "  packed a teapot\n", "  shipped the teapot\n"} {
		if n := strings.Count(r.Text(), "\n"+did); n != 1 {
			t.Errorf("%q is shown %d times", did, n)
		}
	}
}

// shownLog are the rows of the log at the end of the recording: number, time, type, and what it is about.
func shownLog(t *testing.T, r cast.Recording) []string {
	t.Helper()
	var rows []string
	for _, m := range regexp.MustCompile(`(?m)^ +(\d+)  (\S+Z)  (\w+) *(\w*)$`).FindAllStringSubmatch(r.Text(), -1) {
		rows = append(rows, strings.TrimSpace(strings.Join(m[1:], " ")))
	}
	if len(rows) < 10 {
		t.Fatalf("the recording shows no log:\n%s", r.Text())
	}
	return rows
}

// lines are the events as shownLog has them.
func lines(log []event) []string {
	var rows []string
	for _, e := range log {
		time := e.CreatedAt.UTC().Format("2006-01-02T15:04:05.000Z")
		rows = append(rows, strings.TrimSpace(fmt.Sprintf("%d %s %s %s", e.Seq, time, e.Type, e.CorrelationID)))
	}
	return rows
}

// at is when a text was shown.
func at(t *testing.T, r cast.Recording, text string) time.Duration {
	t.Helper()
	i := slices.IndexFunc(r.Output, func(o cast.Output) bool { return strings.Contains(o.Text, text) })
	if i < 0 {
		t.Fatalf("%q is not shown", text)
	}
	return r.Output[i].At
}

// pictureIsOfRecording checks that the picture in a folder is that of the recording beside it, which it returns.
func pictureIsOfRecording(t *testing.T, folder string) cast.Recording {
	t.Helper()
	f, err := os.Open(filepath.Join(folder, "recording.cast"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was read
	r, err := cast.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := r.SVG(&want); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(folder, "recording.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s/recording.svg is not the picture of recording.cast: run `make recording`", folder)
	}
	if len(got) > 50_000 {
		t.Errorf("the picture has %d bytes", len(got))
	}
	return r
}
