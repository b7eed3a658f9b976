package tools

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// suiteSize is the number of tests in the suite, to notice skipped ones. That of another version may have others.
const suiteSize = 12

// TestConformance runs @workflow/world-testing, the suite that the SDK's authors use for Worlds, against a server.
// conformance/world.mjs is the World under test; conformance/count-cbor.mjs lets the suite count CBOR deliveries.
func TestConformance(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	suite, size := suite, suiteSize
	if l, ok := harness.GivenLine(); ok {
		suite, size = &harness.Folder{Path: "conformance-" + l.Dir}, 0
	}
	node := newNode(t)
	ready(t, suite)
	server := startServer(t)
	report := filepath.Join(t.TempDir(), "report.json")
	preload, err := filepath.Abs(filepath.Join(suite.Path, "count-cbor.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node.program, filepath.Join("node_modules", "vitest", "vitest.mjs"), "run",
		"--reporter=verbose", "--reporter=json", "--outputFile="+report)
	cmd.Dir = suite.Path
	cmd.Env = append(node.env(), "STEPWELL_URL="+server, "STEPWELL_API_KEY="+apiKey, "NODE_OPTIONS=--import "+preload)
	harness.DieWithParent(cmd)
	out, failed := cmd.CombinedOutput()
	tests := readReport(t, report)
	if len(tests) == 0 || size > 0 && len(tests) != size || failed != nil {
		t.Errorf("the suite ran %d tests (want %d): %v\n%s", len(tests), size, failed, out)
	}
	for _, test := range tests {
		t.Run(test.Title, func(t *testing.T) {
			t.Parallel()
			if test.Status != "passed" {
				t.Errorf("%s: %s", test.Status, test.FailureMessages)
			}
		})
	}
}

// suiteTest is the result of one of the suite's tests.
type suiteTest struct {
	Title, Status   string
	FailureMessages []string
}

func readReport(t *testing.T, file string) (tests []suiteTest) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("the suite wrote no report: %v", err)
		return nil
	}
	var report struct {
		TestResults []struct{ AssertionResults []suiteTest }
	}
	if err := json.Unmarshal(data, &report); err != nil {
		t.Fatal(err)
	}
	for _, file := range report.TestResults {
		tests = append(tests, file.AssertionResults...)
	}
	return tests
}
