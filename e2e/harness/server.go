package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
)

var (
	// ServerReady is what a server with STEPWELL_LOG=json says when it is ready; the submatch is its address.
	ServerReady = regexp.MustCompile(`"msg":"listening","addr":"([^"]+)"`)
	// AppReady is what an app says when it is ready; the submatch is its port.
	AppReady = regexp.MustCompile(`(?m)^listening (\d+)$`)
)

// ServerProgram builds the server, once: with -race if the tests were built so.
var ServerProgram = sync.OnceValues(func() (string, error) { return buildServer("stepwell-as-tests", asBuilt...) })

// FastServerProgram builds the server as users have it, once.
var FastServerProgram = sync.OnceValues(func() (string, error) { return buildServer("stepwell") })

func buildServer(name string, flags ...string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	if err := lookAtSources(root); err != nil {
		return "", err
	}
	path := filepath.Join(workDir, name)
	cmd := exec.Command("go", append(append([]string{"build", "-o", path}, flags...), "./cmd/stepwell")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the server: %w\n%s", err, out)
	}
	return path, nil
}

// moduleRoot is the folder above the test's that has the go.mod, seen from there.
func moduleRoot() (string, error) {
	for root := ".."; len(root) < 30; root = filepath.Join(root, "..") {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			return root, nil
		}
	}
	return "", errors.New("found no go.mod above the test's folder")
}

// lookAtSources opens all folders of the module. Go takes an earlier result of a test for a new one unless
// something changed that the test itself has looked at; what programs are built from does not count.
func lookAtSources(root string) error {
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
