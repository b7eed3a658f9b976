package tools

import (
	"bytes"
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
	patience = 90 * time.Second
	pollTime = 20 * time.Millisecond
	// keptOutput is how much of what a process says is shown when a test fails.
	keptOutput = 32 << 10
)

// start starts a program and returns what it says once it is ready: the submatch of the pattern. It is
// stopped with the test, and what it said is shown if the test fails.
func start(t *testing.T, name string, cmd *exec.Cmd, ready *regexp.Regexp) string {
	t.Helper()
	out := &output{pattern: ready, ready: make(chan string, 1)}
	cmd.Stdout, cmd.Stderr = out, out
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // tools have no good end on SIGTERM
		close(ended)
	}()
	t.Cleanup(func() {
		stop(t, name, cmd, ended)
		if t.Failed() {
			t.Logf("%s (process %d) said:\n%s", name, cmd.Process.Pid, out.tail())
		}
	})
	select {
	case said := <-out.ready:
		return said
	case <-ended:
		t.Fatalf("%s ended at once: %v", name, cmd.ProcessState)
	case <-time.After(patience):
		t.Fatalf("%s was not ready within %s", name, patience)
	}
	return ""
}

// stop ends a process in good order if it has not ended.
func stop(t *testing.T, name string, cmd *exec.Cmd, ended <-chan struct{}) {
	t.Helper()
	_ = cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	select {
	case <-ended:
	case <-time.After(patience):
		t.Errorf("%s did not stop within %s of SIGTERM", name, patience)
		_ = cmd.Process.Kill() // fails only if it has ended
		<-ended
	}
}

// output keeps the end of what a process says, and looks for what it says when it is ready.
type output struct {
	ready chan string

	mu      sync.Mutex
	pattern *regexp.Regexp // nil once found
	kept    bytes.Buffer
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

// foreign is what would configure a server, an app or a tool in some other way than a test wants.
var foreign = regexp.MustCompile(`^(DATABASE_URL|STEPWELL_|WORKFLOW_|VERCEL|NODE_|PORT|EFFECTS_FILE|DEBUG|PATH)`)

// cleanEnv is our environment without what is foreign, and with what is given.
func cleanEnv(more ...string) []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "NO_COLOR=1"}
	for _, variable := range os.Environ() {
		if !foreign.MatchString(variable) && !strings.Contains(strings.ToLower(variable), "_proxy=") {
			env = append(env, variable)
		}
	}
	return append(env, more...) // of two that are the same, the later counts
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
