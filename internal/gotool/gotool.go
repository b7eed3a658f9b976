// Package gotool builds programs that tests start, from modules of their own whose dependencies stay out of Stepwell's.
//
// Only tests may import it.
package gotool

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// buildLimit is for the first time, on a busy machine.
const buildLimit = 10 * time.Minute

// Program returns a function that builds the tool with a name, of the module in the folder testdata/name of a package,
// and returns its path. The program stays in Go's build cache.
func Program(pkg, name string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
		defer cancel()
		dir, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", pkg).Output() //nolint:gosec // of this module
		if err != nil {
			return "", fmt.Errorf("find the module of %s: %w", name, withOutput(err))
		}
		build := exec.CommandContext(ctx, "go", "tool", "-n", name) //nolint:gosec // of a module in this repository
		build.Dir = filepath.Join(strings.TrimSpace(string(dir)), "testdata", name)
		path, err := build.Output()
		if err != nil {
			return "", fmt.Errorf("build %s: %w", name, withOutput(err))
		}
		return strings.TrimSpace(string(path)), nil
	})
}

// withOutput adds what a command printed to its error.
func withOutput(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return err
}
