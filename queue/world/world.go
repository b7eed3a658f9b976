// Package world remembers which apps have the client of their own of the npm package @stepwell/world, and which
// events of runs their processes have (docs/protocol.md, section 11).
package world

import (
	"net/http"
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/stepwell-dev/stepwell/entities"
)

const (
	// Version is the newest version of the protocol that the server speaks, as in the header [Header].
	Version = 1
	// Header names the version of the protocol that a request or an answer speaks.
	Header = "Stepwell-World"
	// SpecHeader names the newest spec version of the Workflow SDK that the server serves.
	SpecHeader = "Stepwell-Spec"
	// MIME is the type of a commit and of a delivery that carries its run.
	MIME = "application/vnd.stepwell.world"

	// processHeader names the process of an app that answers.
	processHeader = "Stepwell-Process"
	// maxProcess is the length limit of that name in bytes.
	maxProcess = 64
	// plainTime is how long an app that has answered like another client gets no delivery that only its own could read.
	plainTime = time.Minute
	// maxApps and maxRuns limit what is remembered.
	maxApps, maxRuns = 10_000, 10_000
)

// App is a deployment of a project.
type App struct {
	Project    entities.Project
	Deployment string
}

// Clients is what the answers of apps say about them. It is lost with its process, which costs each app one delivery in
// the form that all clients read. It is safe for concurrent use.
type Clients struct {
	apps *lru.Cache[App, app]
	runs *lru.Cache[entities.RunID, sent]
}

// app is what is known about an app. Unless it is plain, it has a client of its own.
type app struct {
	plainUntil time.Time
	process    string // that answered last
}

// sent is the position up to which a process was sent the log of a run.
type sent struct {
	process string
	seq     int64
}

// NewClients returns what is known at first: nothing.
func NewClients() *Clients {
	apps, err := lru.New[App, app](maxApps)
	if err != nil {
		panic(err) // the size is not positive
	}
	runs, err := lru.New[entities.RunID, sent](maxRuns)
	if err != nil {
		panic(err)
	}
	return &Clients{apps, runs}
}

// Knows reports whether the app has a client of its own. If so, after is the position up to which the process of the
// app that answered last was sent the log of the run; 0 if it was sent nothing.
func (c *Clients) Knows(of App, run entities.RunID) (after int64, own bool) {
	state, ok := c.apps.Get(of)
	if !ok || !state.plainUntil.IsZero() {
		return 0, false
	}
	if last, ok := c.runs.Get(run); ok && last.process == state.process && last.process != "" {
		after = last.seq
	}
	return after, true
}

// Answered notes an answer of the app at the given time, and reports whether its client is one of its own.
func (c *Clients) Answered(by App, header http.Header, at time.Time) bool {
	state, known := c.apps.Get(by)
	if header.Get(Header) != strconv.Itoa(Version) {
		if known && state.plainUntil.IsZero() {
			c.apps.Add(by, app{plainUntil: at.Add(plainTime)})
		}
		return false
	}
	if !known || !at.Before(state.plainUntil) {
		state.plainUntil = time.Time{}
	}
	if state.process = header.Get(processHeader); len(state.process) > maxProcess {
		state.process = ""
	}
	c.apps.Add(by, state)
	return true
}

// Sent notes that the process which has just answered was sent the log of the run up to the position.
func (c *Clients) Sent(of App, run entities.RunID, seq int64) {
	if state, ok := c.apps.Get(of); ok && state.process != "" {
		c.runs.Add(run, sent{state.process, seq})
	}
}

// Position returns the position up to which a process was sent the log of the run, if no other was sent it since; 0
// otherwise.
func (c *Clients) Position(process string, run entities.RunID) int64 {
	if last, ok := c.runs.Get(run); ok && last.process == process {
		return last.seq
	}
	return 0
}

// Note notes that a process which asks for its deliveries is sent the log of the run up to the position.
func (c *Clients) Note(process string, run entities.RunID, seq int64) {
	if process != "" && len(process) <= maxProcess && seq > 0 {
		c.runs.Add(run, sent{process, seq})
	}
}
