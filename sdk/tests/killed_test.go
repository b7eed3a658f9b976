package tests

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// ledgerVariable makes this program the app of TestAKilledAppKeepsWhatItHasDone. It has the path of the ledger.
const ledgerVariable = "SDK_TESTS_LEDGER"

const (
	// last is the step that ends only in the last life of the app. Step n takes n times stepTime.
	last     = 24
	stepTime = 100 * time.Millisecond
	lives    = 4
	// soon is how long after its end a step is on disk.
	soon = 100 * time.Millisecond
)

var killed = stepwell.NewWorkflow[int, int]("killed")

// ledger is a file to which an app process writes what it does, with the times. It has what was written before a kill.
type ledger struct{ file *os.File }

func (l ledger) note(what string, about any) {
	_, _ = fmt.Fprintln(l.file, time.Now().UnixNano(), what, about)
}

// tick writes to the ledger again and again. So the last line tells when the process was killed, and the longest gap for
// how long it got no processor.
func (l ledger) tick() {
	for range time.Tick(10 * time.Millisecond) {
		l.note("tick", "")
	}
}

// notingTransport notes when requests to the server begin and end.
type notingTransport struct {
	ledger ledger
	number *atomic.Int64
}

// RoundTrip implements [http.RoundTripper].
func (n notingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	id := n.number.Add(1)
	n.ledger.note("request", id)
	defer n.ledger.note("answer", id)
	return http.DefaultTransport.RoundTrip(r)
}

// openLedger opens a file to which processes append what they do.
func openLedger(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

// serveKilled is the app process: a fan-out of steps of different lengths. It prints its address.
func serveKilled(path string, inLastLife bool) error {
	file, err := openLedger(path)
	if err != nil {
		return err
	}
	l := ledger{file}
	go l.tick()
	app := stepwell.NewApp(stepwell.AppConfig{
		Name: "killed", Unsigned: "a test on one machine",
		HTTP: &http.Client{Transport: notingTransport{l, new(atomic.Int64)}},
	})
	app.Register(killed.Bind(func(w *stepwell.Context, n int) (int, error) {
		steps := make([]int, n+1)
		for i := range steps {
			steps[i] = i
		}
		ended, err := stepwell.Map(w, steps, func(w *stepwell.Context, i int) (int, error) {
			return stepwell.Do(w, "step", func(ctx context.Context) (int, error) {
				l.note("begin", i)
				enough := time.After(time.Duration(i) * stepTime)
				if i == n && !inLastLife {
					enough = nil
				}
				select {
				case <-enough:
				case <-ctx.Done():
					return 0, context.Cause(ctx)
				}
				l.note("end", i)
				return i, nil
			})
		})
		return len(ended), err
	}))
	h, err := app.Handler()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("address:", listener.Addr())
	return http.Serve(listener, h)
}

// life is what the ledger has of a process.
type life struct {
	begun, ended map[int]time.Time
	over         time.Time // the last line
	// gap is the longest time between two lines, and request the longest that a request took.
	gap, request time.Duration
}

func readLife(t *testing.T, path string) life {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1] // the last line may be in the making
	l := life{begun: map[int]time.Time{}, ended: map[int]time.Time{}}
	requests := map[int]time.Time{}
	for line := range strings.Lines(string(text)) {
		fields := append(strings.Fields(line), "0")
		nanos, _ := strconv.ParseInt(fields[0], 10, 64)
		id, _ := strconv.Atoi(fields[2])
		at := time.Unix(0, nanos)
		if !l.over.IsZero() {
			l.gap = max(l.gap, at.Sub(l.over))
		}
		l.over = at
		switch fields[1] {
		case "begin":
			l.begun[id] = at
		case "end":
			l.ended[id] = at
		case "request":
			requests[id] = at
		case "answer":
			l.request = max(l.request, at.Sub(requests[id]))
			delete(requests, id)
		}
	}
	for _, begun := range requests {
		l.request = max(l.request, l.over.Sub(begun))
	}
	return l
}

// TestAKilledAppKeepsWhatItHasDone kills an app process again and again while some of its steps have ended and others
// are in progress. No step is executed again that ended more than 100 ms before the kill: by the clock of the ledger,
// and not counting that the process got no processor, or the server did not answer. A result may wait for a request in
// progress, and then for its own.
func TestAKilledAppKeepsWhatItHasDone(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := s.client(t, "write")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, kept := t.TempDir(), map[int]int{}
	var run *stepwell.Run[int]
	for n := 1; n <= lives; n++ {
		path := filepath.Join(dir, fmt.Sprint("life-", n))
		app, address, err := startProcess(exec.Command(program), regexp.MustCompile(`address: (\S+)`),
			ledgerVariable+"="+path, "SDK_TESTS_LAST_LIFE="+strconv.FormatBool(n == lives), "STEPWELL_URL="+s.url())
		if err != nil {
			t.Fatal(err)
		}
		s.admin(t, http.MethodPut, "/v1/deployments/killed", map[string]any{"url": "http://" + address}, nil)
		if run == nil {
			if run, err = killed.Start(t.Context(), c, last); err != nil {
				t.Fatal(err)
			}
		}
		if n == lives {
			if out, err := run.Wait(t.Context()); err != nil || out != last+1 {
				t.Errorf("got %d, %v", out, err)
			}
		} else {
			awaitTime(t, app, path, time.Duration(n*5)*stepTime)
		}
		if err := app.stop(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		l := readLife(t, path)
		for step := range l.begun {
			if in, ok := kept[step]; ok {
				t.Errorf("step %d is executed in life %d; it ended in life %d\n%s", step, n, in, app.Output())
			}
		}
		tolerance, before := soon+2*l.request+l.gap, len(kept)
		for step, ended := range l.ended {
			if l.over.Sub(ended) > tolerance {
				kept[step] = n
			}
		}
		t.Logf("life %d: %d steps began, %d ended, %d of them %s before the kill", n, len(l.begun), len(l.ended),
			len(kept)-before, tolerance)
	}
}

// awaitTime waits until the last step has been in progress for a while, by the clock of the ledger.
func awaitTime(t *testing.T, app process, path string, d time.Duration) {
	t.Helper()
	for look := time.Tick(5 * time.Millisecond); ; {
		l := readLife(t, path)
		if begun, ok := l.begun[last]; ok && l.over.Sub(begun) >= d {
			return
		}
		select {
		case <-app.Ended():
			t.Fatalf("the app has ended:\n%s", app.Output())
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-look:
		}
	}
}
