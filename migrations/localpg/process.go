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
	stopGrace  = 15 * time.Second // for a fast shutdown, when the caller sets no other limit
	abortGrace = 6 * time.Second  // for an immediate one: Postgres gives its children 5 s
)

// process is a running server and the guardian that outlives this process to stop it.
type process struct {
	cmd      *exec.Cmd
	log      *tail
	guardian *guardian
	done     chan struct{} // closed when the server has ended and been reaped
	err      error         // how it ended; read after done
}

// launch starts the server and its guardian. The goroutine stays on one thread for as long as the server
// lives: the kernel's signal to orphans (orphanSignal) is bound to the thread that started them.
func launch(cmd *exec.Cmd, f *folder, log *tail) (*process, error) {
	p := &process{cmd: cmd, log: log, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = time.Second // a child that lost its server may keep the log open
	orphanSignal(cmd.SysProcAttr, f.temporary)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread() // or the thread ends, and the kernel takes that for our end elsewhere
		err := cmd.Start()
		started <- err
		if err == nil {
			p.wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, p.guard(f)
}

// wait reaps the server and tells the guardian, who must not signal its process ID from then on.
func (p *process) wait() {
	p.err = p.cmd.Wait()
	if errors.Is(p.err, exec.ErrWaitDelay) {
		p.err = nil
	}
	close(p.done)
}

// guard starts the guardian, or stops the server again: without one it may outlive us.
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

// stop asks for a fast shutdown, then for an immediate one, then kills; it returns when the server is gone.
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

// signalAndWait signals the server and reports whether it ended in time. A deadline of the context replaces
// the grace, so that callers can be more patient or less.
func (p *process) signalAndWait(ctx context.Context, signal syscall.Signal, grace time.Duration) bool {
	ctx, cancel := orWithin(ctx, grace)
	defer cancel()
	_ = p.cmd.Process.Signal(signal) // fails only if it has ended, which done tells
	select {
	case <-p.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// orWithin sets a deadline if the caller has set none.
func orWithin(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	if _, own := ctx.Deadline(); own {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, grace)
}

// exited describes an end of the server that nobody asked for.
func (p *process) exited() error {
	return &ExitError{Program: "postgres", Status: p.cmd.ProcessState.String(), Log: p.log.String()}
}
