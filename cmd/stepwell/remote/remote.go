// Package remote implements the commands that call the HTTP API of a running server. It depends only on that API, and
// on package flow.
//
// A command parses its flags, sends one request or pages through a list, and prints a table or, with --json, the API's
// JSON, one object per line. [Exits] lists the exit codes. Commands for the documents of flows need no server.
package remote

import (
	"io"
	"time"
)

// Commands is the kong grammar of the commands and of their common flags.
type Commands struct {
	URL  string `name:"url" default:"http://127.0.0.1:8788" env:"STEPWELL_URL" group:"api" help:"The server's address."`
	Key  string `name:"api-key" env:"STEPWELL_API_KEY" placeholder:"KEY" group:"api" help:"The API key."`
	JSON bool   `name:"json" group:"api" help:"Print the API's JSON, one object per line."`

	Runs        runsCmd                      `cmd:"" set:"of=run" help:"Start, inspect, cancel and wait for runs."`
	Why         whyCmd                       `cmd:"" help:"Explain why a run is not done: short for runs why."`
	Archive     archiveCmd                   `cmd:"" set:"of=run" help:"Find and read archived runs."`
	Failures    failuresCmd                  `cmd:"" at:"failures" help:"List failed runs in groups."`
	Search      searchCmd                    `cmd:"" at:"search" help:"Find the runs that a text may mean."`
	Workflows   workflowsCmd                 `cmd:"" set:"of=workflow" help:"List, pause and resume workflows."`
	Pauses      wholeListCmd[pauseRow, none] `cmd:"" at:"pauses" help:"List paused runs, workflows and deployments."`
	Catalogs    catalogsCmd                  `cmd:"" set:"of=catalog" help:"Store steps that are planned for goals."`
	Attention   attentionCmd                 `cmd:"" help:"List what needs attention."`
	Stats       statsCmd                     `cmd:"" help:"Count runs, steps and failures."`
	Steps       stepsCmd                     `cmd:"" set:"of=step" help:"Inspect the steps of a run."`
	Hooks       hooksCmd                     `cmd:"" set:"of=hook" help:"Inspect and resume hooks."`
	Waits       waitsCmd                     `cmd:"" help:"Inspect the waits of runs."`
	Streams     streamsCmd                   `cmd:"" help:"Read the streams of a run."`
	Signals     signalsCmd                   `cmd:"" set:"of=signal" help:"Send and list signals."`
	Flows       flowsCmd                     `cmd:"" set:"of=flow" help:"Store workflows that are documents."`
	Collections collectionsCmd               `cmd:"" set:"of=run" help:"Manage runs that collect starts."`
	Schedules   schedulesCmd                 `cmd:"" set:"of=schedule" help:"Start runs at times and intervals."`
	Triggers    triggersCmd                  `cmd:"" set:"of=trigger" help:"Start runs when something happens."`
	Limits      limitsCmd                    `cmd:"" set:"of=limit" help:"Manage concurrency and rate limits."`
	Policies    policiesCmd                  `cmd:"" help:"Give the runs of a workflow limits."`
	Events      eventsCmd                    `cmd:"" help:"Read the events of all runs."`
	Deployments deploymentsCmd               `cmd:"" set:"of=deployment" help:"Register where an app's functions are."`
	Conform     conformCmd                   `cmd:"" help:"Check a function against the function contract."`
	Secrets     secretsCmd                   `cmd:"" set:"of=secret" help:"Manage webhook secrets."`
	Messages    messagesCmd                  `cmd:"" set:"of=message" help:"Inspect, retry and discard messages."`
	Keys        keysCmd                      `cmd:"" set:"of=key" help:"Manage API keys."`
	Whoami      objectCmd[clientRow, none]   `cmd:"" at:"whoami" help:"Show the project and the role of the API key."`
	Projects    projectsCmd                  `cmd:"" set:"of=project" help:"Manage projects."`
	Cells       cellsCmd                     `cmd:"" help:"Send requests to the cells in which their projects are."`
	Audit       auditCmd                     `cmd:"" help:"Read the audit log."`
	SigningKeys signingKeysCmd               `cmd:"" set:"of=signing key" help:"Manage the keys that sign calls to functions."`
	UI          uiCmd                        `cmd:"" name:"ui" help:"Open the dashboard, signed in with the key."`
	Sessions    sessionsCmd                  `cmd:"" set:"of=session" help:"Manage the sessions of the dashboard."`
	Servers     serversCmd                   `cmd:"" help:"List the servers that deliver, and the stranded runs."`
	MCP         mcpCmd                       `cmd:"" name:"mcp" help:"Serve agents, by the Model Context Protocol."`
}

// Vars are the variables of the grammar's tags.
var Vars = map[string]string{
	"statuses":    ",pending,running,completed,failed,cancelled",
	"inNeed":      "Select runs that are stuck, retrying or waiting, as runs why says.",
	"inStatus":    "Select runs that are pending, running, completed, failed or cancelled.",
	"ended":       "Select runs in this status: completed, failed (default) or cancelled.",
	"time":        "an RFC 3339 time, or an age such as 2h or 30d",
	"json":        "JSON, @FILE, or - for standard input",
	"target":      "The deployment; default is the newest one with the workflow.",
	"conflicts":   ",reject,join",
	"conflict":    "If the key is taken: reject the command (default), or join the run that has the key.",
	"debounce":    "Start the run when no such start comes for a while: quiet, max, keep, key.",
	"batch":       "Start one run with the inputs of several such starts: size, wait, bytes, key.",
	"keyTaken":    "If the key is taken: reject the event (default), or join the run that has the key.",
	"endings":     "How the runs end: completed, failed or cancelled; default is each. May be repeated.",
	"overlaps":    ",skip,wait,waitAll,cancel,allow",
	"catchUp":     "Which late ticks start a run: latest (default) or all.",
	"overlap":     "While the last run has not ended: skip the tick (default), wait, waitAll, cancel it, or allow both.",
	"place":       "Start --follow after this event ID of the stream, or at its beginning with 0; default is now.",
	"fulls":       ",wait,reject,replaceWaiting,cancelOldest",
	"hasWorkflow": "A workflow it has; may be repeated.",
	"full":        "If there is no slot: wait (default), reject the start, replaceWaiting or cancelOldest runs.",

	"mcpListen":   "Serve HTTP at this loopback address, such as 127.0.0.1:8790, instead of standard input and output.",
	"limitUse":    "A limit and its key, in policies an expression for it; may be repeated.",
	"policyStep":  "A limit of the step with the name; may be repeated.",
	"limitTenant": "Who takes turns at a limit, in policies an expression; may be repeated.",
}

// The keys of kong's groups of flags and commands.
const (
	FlagGroup    = "api"
	CommandGroup = "api-commands"
)

// Console is a command's standard streams and clock.
type Console struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Now            func() time.Time
	// RelativeTimes prints times relative to now instead of as RFC 3339.
	RelativeTimes bool
}

// Session is the console and the API client that a command runs with.
type Session struct {
	Console

	client *client
	json   bool
	// maxText is how many bytes of a value are printed; 0 for all.
	maxText int
	// A command that follows or waits retries every retryInterval, for up to retryFor.
	retryInterval, retryFor time.Duration
}

// Session returns the session for the flags. An invalid address is an error with [ExitUsage].
func (c *Commands) Session(console Console) (*Session, error) {
	client, err := newClient(c.URL, c.Key)
	if err != nil {
		return nil, err
	}
	return &Session{
		Console: console, client: client, json: c.JSON, retryInterval: time.Second, retryFor: time.Minute,
	}, nil
}
