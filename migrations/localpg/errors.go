package localpg

import (
	"fmt"
	"strings"
)

// MissingError reports that there is no Postgres to run.
type MissingError struct {
	Tried []string // each place that was searched and why it was not used, in order
}

// Error lists what to install, then what was tried.
func (e *MissingError) Error() string {
	return "no Postgres found. Do one of these:\n" +
		"  Debian, Ubuntu:  apt-get install postgresql\n" +
		"  Fedora, RHEL:    dnf install postgresql-server\n" +
		"  Alpine:          apk add postgresql17\n" +
		"  macOS:           brew install postgresql@17\n" +
		"  anywhere:        use the address of a server you already have\n" +
		"Tried:\n  " + strings.Join(e.Tried, "\n  ")
}

// ExitError reports that a Postgres program exited unexpectedly.
type ExitError struct {
	Program string // such as initdb
	Status  string // such as "exit status 1"
	Log     string // the last lines of its output
}

// Error gives the status and the log.
func (e *ExitError) Error() string {
	return fmt.Sprintf("%s exited (%s): %s", e.Program, e.Status, e.Log)
}
