package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// timeout limits how long processes may take to start and to stop.
const timeout = 60 * time.Second

// process is a process started by the bench.
type process struct {
	name  string
	cmd   *exec.Cmd
	stops os.Signal     // signal for a graceful stop
	ended chan struct{} // closed after the process has ended and err is set
	err   error

	mu     sync.Mutex
	output []string // the last lines
}

// launch starts a program, waits for a line of output that matches the pattern, and returns the submatch. Later lines
// go to the listener, if there is one.
func launch(name string, cmd *exec.Cmd, ready *regexp.Regexp, listen func(line string)) (*process, string, error) {
	p := &process{name: name, cmd: cmd, stops: syscall.SIGTERM, ended: make(chan struct{})}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, "", fmt.Errorf("start %s: %w", name, err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	err = p.start()
	_ = in.Close() // the program has its own copy
	if err != nil {
		_ = out.Close()
		return nil, "", fmt.Errorf("start %s: %w", name, err)
	}
	found := make(chan string, 1)
	go p.read(out, ready, found, listen)
	select {
	case at := <-found:
		return p, at, nil
	case <-p.ended:
		return nil, "", fmt.Errorf("%s ended at once: %w; its output:\n%s", name, p.err, p.tail())
	case <-time.After(timeout):
		late := fmt.Errorf("%s was not ready within %s; its output:\n%s", name, timeout, p.tail())
		return nil, "", errors.Join(late, p.stop())
	}
}

// start starts the program. The goroutine is locked to its thread until the program ends, because Pdeathsig applies to
// the end of the starting thread, not of the process.
func (p *process) start() error {
	dieWithParent(p.cmd)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.ended)
		}
	}()
	return <-started
}

func (p *process) read(out io.ReadCloser, ready *regexp.Regexp, found chan<- string, listen func(string)) {
	defer func() { _ = out.Close() }()
	isReady := false
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if isReady && listen != nil {
			listen(line)
			continue
		}
		p.remember(line)
		if m := ready.FindStringSubmatch(line); !isReady && m != nil {
			isReady = true
			found <- m[len(m)-1]
		}
	}
}

func (p *process) remember(line string) {
	const kept = 20
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.output = append(p.output, line); len(p.output) > kept {
		p.output = p.output[1:]
	}
}

func (p *process) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.output, "\n")
}

// stop stops the process gracefully, or kills it after the timeout.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(p.stops) // fails only if it has ended
	select {
	case <-p.ended:
	case <-time.After(timeout):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("%s did not stop within %s and was killed", p.name, timeout)
	}
	if p.err != nil {
		return fmt.Errorf("stop %s: %w; its output:\n%s", p.name, p.err, p.tail())
	}
	return nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }
