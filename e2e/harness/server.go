package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

var (
	// ServerReady matches the log line of a ready server with STEPWELL_LOG=json; the submatch is its address.
	ServerReady = regexp.MustCompile(`"msg":"listening","addr":"([^"]+)"`)
	// AppReady matches the output of a ready app; the submatch is its port.
	AppReady = regexp.MustCompile(`(?m)^listening (\d+)$`)
)

// ServerProgram builds the server, with -race if the tests use it.
var ServerProgram = sync.OnceValues(func() (string, error) { return buildServer(buildFlags...) })

// FastServerProgram builds the server, always without -race.
var FastServerProgram = sync.OnceValues(func() (string, error) { return buildServer() })

// buildServer builds the server in the folder bin, where go build finds it again: it is linked once for all packages.
func buildServer(flags ...string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	if err := walkSources(root); err != nil {
		return "", err
	}
	path := filepath.Join("bin", "tests", strings.Join(append([]string{"stepwell"}, flags...), ""))
	cmd := exec.Command("go", append(append([]string{"build", "-o", path}, flags...), "./cmd/stepwell")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the server: %w\n%s", err, out)
	}
	return filepath.Abs(filepath.Join(root, path))
}

// moduleRoot returns the relative path to the folder with the go.mod above the test's folder.
func moduleRoot() (string, error) {
	for root := ".."; len(root) < 30; root = filepath.Join(root, "..") {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			return root, nil
		}
	}
	return "", errors.New("found no go.mod above the test's folder")
}

// walkSources opens all folders of the module, so that go test does not reuse cached results after a change of the
// server's sources. The cache considers only files that the test itself has opened, not the inputs of programs that it
// builds.
func walkSources(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != root && (name == "node_modules" || name == "bin" || name[0] == '.') {
			return filepath.SkipDir
		}
		return nil
	})
}
