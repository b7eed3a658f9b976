package localpg

import (
	"fmt"
	"strings"
)

// InUseError says that a living server works on the folder, so no second one can be started on it.
type InUseError struct {
	Dir string // the folder given to Start
}

// Error names the folder.
func (e *InUseError) Error() string {
	return fmt.Sprintf("data folder %s is in use by a running server: stop that one or choose another folder", e.Dir)
}

// VersionError says that the folder's data belongs to a major version of which no programs were found.
type VersionError struct {
	Dir   string   // the folder given to Start
	Major int      // the version that wrote the data
	Found []string // the programs that were found, with their versions
}

// Error names both versions and the ways out.
func (e *VersionError) Error() string {
	found := "none"
	if len(e.Found) > 0 {
		found = strings.Join(e.Found, ", ")
	}
	return fmt.Sprintf("data folder %s was written by Postgres %d, and only that version can open it (found: %s): "+
		"install Postgres %d, or choose another folder", e.Dir, e.Major, found, e.Major)
}

// MissingError says that there is no Postgres to run.
type MissingError struct {
	Tried []string // what was looked at and why it did not do, in order
}

// Error says what to install, then what was tried.
func (e *MissingError) Error() string {
	return "no Postgres found. Do one of these:\n" +
		"  Debian, Ubuntu:  apt-get install postgresql\n" +
		"  Fedora, RHEL:    dnf install postgresql-server\n" +
		"  Alpine:          apk add postgresql17\n" +
		"  macOS:           brew install postgresql@17\n" +
		"  anywhere:        start Docker, or use the address of a server you already have\n" +
		"Tried:\n  " + strings.Join(e.Tried, "\n  ")
}

// UnreachableError says that the user who has to run the server cannot get to the folder.
type UnreachableError struct {
	Dir    string // the folder given to Start
	Parent string // the folder on the way that is closed
	User   string // who cannot pass it
}

// Error names the closed folder and a place that works.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("data folder %s cannot be reached by user %s, who runs Postgres for root: %s is closed to them; "+
		"choose a folder elsewhere, for example %s", e.Dir, e.User, e.Parent, rootDir)
}

// ForeignFolderError says that the folder holds files which Start did not put there.
type ForeignFolderError struct {
	Dir string // the folder given to Start
}

// Error asks for another folder.
func (e *ForeignFolderError) Error() string {
	return fmt.Sprintf("folder %s holds other files: choose an empty or a new folder for the database", e.Dir)
}

// PortError says that the wanted port is taken.
type PortError struct {
	Port int
}

// Error names the port.
func (e *PortError) Error() string {
	return fmt.Sprintf("port %d of 127.0.0.1 is taken: choose another, or 0 for any free one", e.Port)
}

// ExitError says that a program of Postgres ended when it should not have.
type ExitError struct {
	Program string // its name, such as initdb
	Status  string // how it ended
	Log     string // the last lines it wrote
}

// Error gives the status and the log.
func (e *ExitError) Error() string {
	return fmt.Sprintf("%s ended (%s): %s", e.Program, e.Status, e.Log)
}
