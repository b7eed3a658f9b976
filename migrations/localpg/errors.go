package localpg

import (
	"fmt"
	"strings"
)

// InUseError reports that a running server uses the folder.
type InUseError struct {
	Dir string // the folder given to Start
}

// Error names the folder.
func (e *InUseError) Error() string {
	return fmt.Sprintf("data folder %s is in use by a running server: stop that one or choose another folder", e.Dir)
}

// VersionError reports that no programs of the data's major version were found.
type VersionError struct {
	Dir   string   // the folder given to Start
	Major int      // the version that wrote the data
	Found []string // the programs of other versions that were found
}

// Error names the versions and the remedies.
func (e *VersionError) Error() string {
	found := "none"
	if len(e.Found) > 0 {
		found = strings.Join(e.Found, ", ")
	}
	return fmt.Sprintf("data folder %s was written by Postgres %d, and only that version can open it (found: %s): "+
		"install Postgres %d, or choose another folder", e.Dir, e.Major, found, e.Major)
}

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
		"  anywhere:        start Docker, or use the address of a server you already have\n" +
		"Tried:\n  " + strings.Join(e.Tried, "\n  ")
}

// UnreachableError reports that the user who runs the server cannot reach the folder.
type UnreachableError struct {
	Dir    string // the folder given to Start
	Parent string // the folder above it that the user cannot enter
	User   string // the user who runs the server
}

// Error names the folder that blocks the way and suggests another location.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("user %s, who runs Postgres for root, may not enter %s and so cannot reach data folder %s: "+
		"choose a folder elsewhere, for example %s", e.User, e.Parent, e.Dir, rootDir)
}

// ForeignFolderError reports that the folder holds files that Start did not create.
type ForeignFolderError struct {
	Dir string // the folder given to Start
}

// Error asks for another folder.
func (e *ForeignFolderError) Error() string {
	return fmt.Sprintf("folder %s holds other files: choose an empty or a new folder for the database", e.Dir)
}

// PortError reports that the requested port is in use.
type PortError struct {
	Port int
}

// Error names the port.
func (e *PortError) Error() string {
	return fmt.Sprintf("port %d of 127.0.0.1 is in use: choose another, or 0 for any free one", e.Port)
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
