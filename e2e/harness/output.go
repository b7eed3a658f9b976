package harness

import (
	"bytes"
	"regexp"
	"sync"
)

// keptOutput is the number of bytes kept of a process's output.
const keptOutput = 32 << 10

// output keeps the end of a process's output, and searches it for the pattern that signals readiness.
type output struct {
	ready chan string

	mu      sync.Mutex
	pattern *regexp.Regexp // nil once found
	kept    bytes.Buffer
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
