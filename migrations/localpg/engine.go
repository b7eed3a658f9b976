package localpg

import (
	"context"
	"maps"
	"os/exec"
	"slices"
)

// superuser is the one role of a private server.
const superuser = "stepwell"

// engine is one way to run Postgres: programs on this machine, or Docker.
type engine interface {
	// prepare makes the folder's data, if there is none yet.
	prepare(ctx context.Context, f *folder, o Options) error
	// command is the server, in the foreground, listening on the port of 127.0.0.1.
	command(f *folder, port int, settings map[string]string) *exec.Cmd
}

// arguments are settings as the server's command line takes them, in a fixed order.
func arguments(settings map[string]string) []string {
	var args []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}
