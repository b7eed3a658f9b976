package localpg

import (
	"context"
	"maps"
	"os/exec"
	"slices"
)

// superuser is the only role of a private server.
const superuser = "stepwell"

// engine is one way to run Postgres: programs on this machine, or Docker.
type engine interface {
	// prepare initializes the folder's data if there is none.
	prepare(ctx context.Context, f *folder, o Options) error
	// command returns the command that runs the server in the foreground, listening on 127.0.0.1:port.
	command(f *folder, port int, settings map[string]string) *exec.Cmd
}

// arguments returns the settings as command-line arguments of postgres, sorted by name.
func arguments(settings map[string]string) []string {
	var args []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}
