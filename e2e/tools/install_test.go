package tools

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// suite is the folder of the conformance suite. Its packages include a Node that is new enough for all tools.
var suite = &harness.Folder{Path: "conformance"}

func ready(t *testing.T, f *harness.Folder) {
	t.Helper()
	if err := f.Ready(); err != nil {
		t.Fatal(err)
	}
}

// node is a Node that is new enough for all tools.
type node struct {
	program string
	path    string // a PATH with this Node first
}

// newNode returns the suite's Node, or else the machine's.
func newNode(t *testing.T) node {
	t.Helper()
	ready(t, suite)
	bin, err := filepath.Abs(filepath.Join(suite.Path, "node_modules", ".bin"))
	if err != nil {
		t.Fatal(err)
	}
	own := node{filepath.Join(bin, "node"), bin + string(filepath.ListSeparator) + os.Getenv("PATH")}
	if _, err := os.Stat(own.program); err == nil {
		return own
	}
	if err := checkNode(); err != nil {
		t.Fatal(err)
	}
	return node{"node", os.Getenv("PATH")}
}

// env returns the environment for programs that run on this Node.
func (n node) env(more ...string) []string {
	// The tools run for a short time, and would spend most of their time on compilation.
	cache := "NODE_COMPILE_CACHE=" + filepath.Join(harness.WorkDir(), "node")
	return cleanEnv(append([]string{"PATH=" + n.path, cache, "WORKFLOW_NO_UPDATE_CHECK=1"}, more...)...)
}

var nodeVersion = regexp.MustCompile(`^v(\d+)\.(\d+)\.`)

// checkNode checks the version of the machine's Node. The dashboards and the suite need 22.5.
var checkNode = sync.OnceValue(func() error {
	out, err := exec.Command("node", "--version").Output()
	if err != nil {
		return fmt.Errorf("node --version: %w", err)
	}
	found := nodeVersion.FindSubmatch(out)
	if found == nil {
		return fmt.Errorf("node --version printed %q", out)
	}
	major, _ := strconv.Atoi(string(found[1])) // they are digits
	minor, _ := strconv.Atoi(string(found[2]))
	if major < 22 || major == 22 && minor < 5 {
		return fmt.Errorf("the SDK's dashboards need Node 22.5 or newer; found %s", out)
	}
	return nil
})
