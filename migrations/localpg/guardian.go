package localpg

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// guardianScript waits for end-of-file on its standard input, which comes when the owner dies for any reason: no other
// process holds the write end of the pipe. A line before that means that the server has ended, so its process ID must
// no longer be used. Arguments: process ID, signal, folder to remove or "".
const guardianScript = `
pid=$1
while read -r line; do pid=; done
if [ -n "$pid" ]; then
	kill -s "$2" "$pid" 2>/dev/null
	tries=0
	while kill -0 "$pid" 2>/dev/null && [ "$tries" -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
fi
[ -z "$3" ] || rm -rf -- "$3"
`

// guardian is a shell process that cleans up if the owner dies.
type guardian struct {
	cmd   *exec.Cmd
	input io.WriteCloser
}

// startGuardian starts the guardian of one server. It runs as the current user, in a process group of its own: a Ctrl-C
// that ends the owner must not end it.
func startGuardian(pid int, f *folder) (*guardian, error) {
	signal, remove := "INT", ""
	if f.temporary {
		signal, remove = "QUIT", f.dir
	}
	args := []string{"-c", guardianScript, "stepwell-guardian", strconv.Itoa(pid), signal, remove}
	cmd := exec.Command("/bin/sh", args...) //nolint:gosec // our own script, its arguments quoted
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start guardian: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start guardian: %w", err)
	}
	return &guardian{cmd: cmd, input: input}, nil
}

// serverGone makes the guardian forget the server's process ID.
func (g *guardian) serverGone() {
	_, _ = io.WriteString(g.input, "gone\n") // fails only if the guardian has ended, too
}

// dismiss ends the guardian before it does anything.
func (g *guardian) dismiss() {
	_ = g.cmd.Process.Kill() // fails only if it has ended
	_ = g.cmd.Wait()         // reaps it; always an error, as it was killed
}
