package tools

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// workDir holds what the tests build, until all have ended.
var workDir string

func TestMain(m *testing.M) {
	flag.Parse()
	// Tests wait for servers and apps as much as they compute, but each tool is a Node process that wants a
	// whole processor for a second.
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		_ = flag.Set("test.parallel", "6") // it is a number
	}
	var err error
	if workDir, err = os.MkdirTemp("", "stepwell-tools-"); err != nil {
		fmt.Fprintln(os.Stderr, "e2e/tools:", err)
		os.Exit(1)
	}
	defer func() { _ = os.RemoveAll(workDir) }()
	testdb.Main(m)
}

// skipIfShort skips what is not for go test -short: all of it.
func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes two minutes")
	}
}

// serverProgram builds the server, once.
var serverProgram = sync.OnceValues(func() (string, error) {
	if err := lookAtSources(); err != nil {
		return "", err
	}
	path := filepath.Join(workDir, "stepwell")
	out, err := exec.Command("go", "build", "-o", path, "../../cmd/stepwell").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the server: %w\n%s", err, out)
	}
	return path, nil
})

// lookAtSources opens all folders of the module. Go takes an earlier result of a test for a new one unless
// something changed that the test itself has looked at; what programs are built from does not count.
func lookAtSources() error {
	return filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (name == "node_modules" || name == "bin" || name[0] == '.' && name != "..") {
			return filepath.SkipDir
		}
		return nil
	})
}
