// Package remote is the part of the command line that speaks to a running server, over its API below /v1. It knows
// nothing of the server but what the API shows, and imports nothing of ours.
//
// A command reads flags, makes one request or walks through a list, and prints: a table for people or, with --json,
// the API's own JSON, an object on each line. [Exits] says with which codes commands end.
package remote

import (
	"io"
	"time"
)

// Commands are those over the API, for kong, with the flags they have in common.
type Commands struct {
	URL  string `name:"url" default:"http://127.0.0.1:8788" env:"STEPWELL_URL" group:"api" help:"The server's address."`
	Key  string `name:"api-key" env:"STEPWELL_API_KEY" placeholder:"KEY" group:"api" help:"A key for the server's API."`
	JSON bool   `name:"json" group:"api" help:"Print the API's JSON, an object on each line."`

	Runs        runsCmd        `cmd:"" group:"api-commands" help:"Start, watch, cancel and wait for runs."`
	Steps       stepsCmd       `cmd:"" group:"api-commands" help:"Look at the steps of a run."`
	Hooks       hooksCmd       `cmd:"" group:"api-commands" help:"Look at hooks, and resume them."`
	Waits       waitsCmd       `cmd:"" group:"api-commands" help:"Look at the waits of a run."`
	Streams     streamsCmd     `cmd:"" group:"api-commands" help:"Read what runs write as they go on."`
	Signals     signalsCmd     `cmd:"" group:"api-commands" help:"Tell runs what has happened outside."`
	Events      eventsCmd      `cmd:"" group:"api-commands" help:"Read the log of all runs."`
	Deployments deploymentsCmd `cmd:"" group:"api-commands" help:"Say where the functions of apps are."`
	Secrets     secretsCmd     `cmd:"" group:"api-commands" help:"Say what signs requests to webhooks."`
	Messages    messagesCmd    `cmd:"" group:"api-commands" help:"Look after messages that could not be delivered."`
	Keys        keysCmd        `cmd:"" group:"api-commands" help:"Give out API keys, and revoke them."`
	Projects    projectsCmd    `cmd:"" group:"api-commands" help:"List and create projects."`
	Audit       auditCmd       `cmd:"" group:"api-commands" help:"See who did what over the API."`
	SigningKeys signingKeysCmd `cmd:"" group:"api-commands" help:"Say what signs the server's calls of functions."`
}

// Vars are what tags say as ${NAME}, for kong.
var Vars = map[string]string{
	"statuses":  ",pending,running,completed,failed,cancelled",
	"inStatus":  "Those that are pending, running, completed, failed or cancelled.",
	"json":      "JSON, @FILE, or - for standard input",
	"target":    "Whose function it goes to; the newest that has the workflow when not given.",
	"conflicts": ",reject,join",
	"conflict":  "What to do when the key is taken: reject, unless told otherwise, or join the run that has it.",
	"place":     "Where --follow begins: behind this ID of the stream, or 0 for its beginning; now when not given.",
}

// Group is the key of the groups in which kong shows the flags and the commands, for their titles.
const (
	FlagGroup    = "api"
	CommandGroup = "api-commands"
)

// Console is what a command reads, writes, and takes for the time.
type Console struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Now            func() time.Time
	// Ages shows times as their distance from now, as people at a terminal like them, and not as RFC 3339.
	Ages bool
}

// Session is what a command runs with: a console and the way to the server.
type Session struct {
	Console

	client *client
	json   bool
	// pause is how long a command that follows something waits before it tries again, and patience how long it tries.
	pause, patience time.Duration
}

// Session is that of the flags. It fails with an error of [ExitUsage] if the address is none.
func (c *Commands) Session(console Console) (*Session, error) {
	client, err := newClient(c.URL, c.Key)
	if err != nil {
		return nil, err
	}
	return &Session{Console: console, client: client, json: c.JSON, pause: time.Second, patience: time.Minute}, nil
}
