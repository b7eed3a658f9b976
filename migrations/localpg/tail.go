package localpg

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// tailLines is the number of lines of a program's output that an error shows.
const tailLines = 20

// tail is a writer that logs each line and keeps the last ones.
type tail struct {
	logger *slog.Logger

	mu      sync.Mutex
	partial []byte   // an incomplete line
	last    []string // at most tailLines
}

// newTail returns a tail that logs to logger.
func newTail(logger *slog.Logger) *tail {
	return &tail{logger: logger}
}

// Write implements [io.Writer].
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

// keep logs and keeps one line.
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
