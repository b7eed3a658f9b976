package localpg

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// tailLines is how much of a program's output an error shows.
const tailLines = 20

// tail is a writer that passes on every line to a logger and remembers the last ones.
type tail struct {
	logger *slog.Logger

	mu      sync.Mutex
	partial []byte   // a line whose end has not come yet
	last    []string // at most tailLines
}

// newTail returns a tail that logs to logger.
func newTail(logger *slog.Logger) *tail {
	return &tail{logger: logger}
}

// Write takes a piece of output.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partial = append(t.partial, p...)
	for {
		line, rest, found := bytes.Cut(t.partial, []byte("\n"))
		if !found {
			return len(p), nil
		}
		t.partial = rest
		t.keep(strings.TrimSpace(string(line)))
	}
}

// keep logs and remembers one line.
func (t *tail) keep(line string) {
	t.logger.Debug("postgres", "line", line)
	t.last = append(t.last, line)
	if len(t.last) > tailLines {
		t.last = t.last[1:]
	}
}

// String returns the last lines.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := t.last
	if len(t.partial) > 0 {
		lines = append(slices.Clone(lines), string(t.partial))
	}
	return strings.Join(lines, "\n")
}
