package localpg

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	stopGrace  = 15 * time.Second // for a fast shutdown, if the caller sets no deadline
	abortGrace = 6 * time.Second  // for an immediate shutdown: Postgres gives its children 5 s
)

// process is a running server and its guardian.
type process struct {
	cmd      *exec.Cmd
	log      *tail
	guardian *guardian
	done     chan struct{} // closed when the server has exited and been reaped
}

// launch starts the server and its guardian. The goroutine keeps its thread for as long as the server lives, because
// the kernel signals an orphan (setOrphanSignal) when the thread that started it ends.
func launch(cmd *exec.Cmd, f *folder, log *tail) (*process, error) {
	p := &process{cmd: cmd, log: log, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = time.Second // children of a killed server may keep its output open
	setOrphanSignal(cmd.SysProcAttr, f.temporary)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread() // else the thread ends, and the kernel signals all that it started
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // ProcessState has the status
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, p.guard(f)
}

// guard starts the guardian. If that fails it stops the server, which could outlive this process without a guardian.
func (p *process) guard(f *folder) error {
	g, err := startGuardian(p.cmd.Process.Pid, f)
	if err != nil {
		_ = p.stop(context.Background())
		return err
	}
	p.guardian = g
	go func() {
		<-p.done
		g.serverGone()
	}()
	return nil
}

// stop requests a fast shutdown, then an immediate one, then kills the server. It returns when the server has ended.
func (p *process) stop(ctx context.Context) error {
	for _, step := range []struct {
		signal syscall.Signal
		grace  time.Duration
	}{{syscall.SIGINT, stopGrace}, {syscall.SIGQUIT, abortGrace}} {
		if p.signalAndWait(ctx, step.signal, step.grace) {
			return nil
		}
		ctx = context.WithoutCancel(ctx)
	}
	_ = p.cmd.Process.Kill() // fails only if it has just ended
	<-p.done
	return errors.New("stop postgres: it ignored SIGINT and SIGQUIT and was killed")
}

// signalAndWait signals the server and reports whether it ended in time. The context's deadline replaces the grace.
func (p *process) signalAndWait(ctx context.Context, signal syscall.Signal, grace time.Duration) bool {
	ctx, cancel := withDefaultTimeout(ctx, grace)
	defer cancel()
	_ = p.cmd.Process.Signal(signal) // fails only if it has ended
	select {
	case <-p.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// withDefaultTimeout adds a timeout if the context has no deadline.
func withDefaultTimeout(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, grace)
}

// exited returns the error for a server that exited on its own.
func (p *process) exited() error {
	return &ExitError{Program: "postgres", Status: p.cmd.ProcessState.String(), Log: p.log.String()}
}
