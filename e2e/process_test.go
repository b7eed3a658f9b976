package e2e

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// patience is how long anything may take that is not a matter of time itself: long, for a busy machine.
	patience = 5 * time.Minute
	pollTime = 20 * time.Millisecond
	// keptOutput is how much of what a process says is shown when a test fails.
	keptOutput = 32 << 10
)

// process is one that a test started. Its standard input is a pipe, so that it can notice our death.
type process struct {
	name  string
	cmd   *exec.Cmd
	input io.Closer
	out   *output
	ended chan struct{} // closed once err is its end
	err   error
}

// startProcess starts a program and returns what it says once it is ready: the submatch of the pattern.
// It is stopped with the test at the latest, and what it said is shown if the test fails.
func startProcess(t *testing.T, name string, cmd *exec.Cmd, ready *regexp.Regexp) (*process, string) {
	t.Helper()
	p := &process{name: name, cmd: cmd, out: newOutput(ready), ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.out, p.out
	var err error
	if p.input, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.stop(t)
		if t.Failed() {
			t.Logf("%s (process %d) said:\n%s", name, cmd.Process.Pid, p.out.tail())
		}
	})
	select {
	case said := <-p.out.ready:
		return p, said
	case <-p.ended:
		t.Fatalf("%s ended at once: %v", name, p.err)
	case <-time.After(patience):
		t.Fatalf("%s was not ready within %s", name, patience)
	}
	return nil, ""
}

// stop ends the process in good order, which it has to do without an error. It may have ended before.
func (p *process) stop(t *testing.T) {
	t.Helper()
	select {
	case <-p.ended:
		return
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only if it ended just now
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Errorf("%s did not stop within %s of SIGTERM", p.name, patience)
		p.kill()
	}
	if p.err != nil {
		t.Errorf("%s ended badly on SIGTERM: %v", p.name, p.err)
	}
}

// kill ends the process as a crash would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.ended
}

// output keeps the end of what a process says, and looks for what it says when it is ready.
type output struct {
	ready   chan string
	pattern *regexp.Regexp // nil once found

	mu   sync.Mutex
	kept bytes.Buffer
}

func newOutput(pattern *regexp.Regexp) *output {
	return &output{ready: make(chan string, 1), pattern: pattern}
}

func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = o.kept.Write(data) // never fails
	if o.pattern != nil {
		if found := o.pattern.FindSubmatch(o.kept.Bytes()); found != nil {
			o.pattern = nil
			o.ready <- string(found[1])
		}
	}
	if extra := o.kept.Len() - keptOutput; extra > keptOutput {
		o.kept.Next(extra)
	}
	return len(data), nil
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.kept.String()
}

// cleanEnv is our environment without what would configure a server or an app, and with what is given.
func cleanEnv(more ...string) []string {
	ours := regexp.MustCompile(`^(DATABASE_URL|STEPWELL_|WORKFLOW_|VERCEL|NODE_|PORT=|EFFECTS_FILE)`)
	var env []string
	for _, variable := range os.Environ() {
		if !ours.MatchString(variable) && !strings.Contains(strings.ToLower(variable), "_proxy=") {
			env = append(env, variable)
		}
	}
	return append(env, more...)
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(pollTime)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within %s", what, patience)
		case <-tick.C:
		}
	}
}
