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

// suite is the folder of the conformance suite. It also brings a Node that is new enough for everything here.
var suite = &harness.Folder{Path: "conformance"}

func ready(t *testing.T, f *harness.Folder) {
	t.Helper()
	if err := f.Ready(); err != nil {
		t.Fatal(err)
	}
}

// node is a Node that is new enough for everything here.
type node struct {
	program string
	path    string // a PATH on which it comes first
}

// newNode is the suite's own Node, or else that of the machine.
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

// env is the environment of what runs on it.
func (n node) env(more ...string) []string {
	// The tools are short, and spend most of their time on being compiled.
	cache := "NODE_COMPILE_CACHE=" + filepath.Join(harness.WorkDir(), "node")
	return cleanEnv(append([]string{"PATH=" + n.path, cache, "WORKFLOW_NO_UPDATE_CHECK=1"}, more...)...)
}

var nodeVersion = regexp.MustCompile(`^v(\d+)\.(\d+)\.`)

// checkNode looks at the machine's own Node. The dashboards and the suite need 22.5.
var checkNode = sync.OnceValue(func() error {
	out, err := exec.Command("node", "--version").Output()
	if err != nil {
		return fmt.Errorf("node --version: %w", err)
	}
	found := nodeVersion.FindSubmatch(out)
	if found == nil {
		return fmt.Errorf("node --version says %q", out)
	}
	major, _ := strconv.Atoi(string(found[1])) // they are digits
	minor, _ := strconv.Atoi(string(found[2]))
	if major < 22 || major == 22 && minor < 5 {
		return fmt.Errorf("the SDK's dashboards need Node 22.5 or newer; install it (here is %s)", out)
	}
	return nil
})
