// Command gotest runs go test, prints what that prints, and appends the time of each test to a file:
//
//	go run ./scripts/gotest TIMES -race ./...
//
// The tests of all packages use one Postgres: that of TEST_DATABASE_URL, or else one that gotest starts and stops. To
// initialize one for each package takes longer than the tests of most.
//
// go test tells the times of tests that pass only among all the output of them. (gotestsum tells them too, but has
// failures under headings of its own, and not with the line "--- FAIL" that people and programs look for.)
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/migrations/localpg"
)

// databaseURL is the environment variable with the address of the server on which tests create their databases.
const databaseURL = "TEST_DATABASE_URL"

func main() {
	code, err := runWithPostgres(os.Args[1], os.Args[2:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// runWithPostgres is run with TEST_DATABASE_URL.
func runWithPostgres(timesFile string, args []string, out io.Writer) (code int, err error) {
	if os.Getenv(databaseURL) != "" {
		return run(timesFile, args, out)
	}
	s, err := localpg.Start(context.Background(), localpg.ForTests())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Stop(context.Background())) }()
	if err := os.Setenv(databaseURL, s.DSN()); err != nil {
		return 0, err
	}
	return run(timesFile, args, out)
}

// run runs go test and returns its exit code.
func run(timesFile string, args []string, out io.Writer) (code int, err error) {
	if err := os.MkdirAll(filepath.Dir(timesFile), 0o750); err != nil { //nolint:gosec // the Makefile's
		return 0, err
	}
	times, err := os.OpenFile(timesFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the Makefile's
	if err != nil {
		return 0, err
	}
	defer func() { _ = times.Close() }()
	args = slices.Concat([]string{"test"}, args, []string{"-json"})
	cmd := exec.Command("go", args...) //nolint:gosec // what the Makefile says
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	if err := report(stdout, out, times); err != nil {
		return 0, err
	}
	_ = cmd.Wait() // the exit code says it
	return cmd.ProcessState.ExitCode(), nil
}

// event is a line of go test -json. See go doc test2json.
type event struct {
	Action  string
	Package string
	Test    string // "" if the event is one of the package
	Elapsed float64
	Output  string
}

// report prints the outcome of each package when it ends, with the output of what failed, and writes the times of all.
func report(in io.Reader, out, times io.Writer) error {
	r := reporter{
		out: out, times: times, outputs: map[string]map[string]string{}, parallel: map[string]bool{},
		parts: map[string]float64{},
	}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			e = event{Output: string(line)} // a message of go itself
		}
		if err := r.handle(e); err != nil {
			return err
		}
	}
}

// reporter keeps the output of packages that have not ended.
type reporter struct {
	out, times io.Writer
	outputs    map[string]map[string]string // by package, then by test
	parallel   map[string]bool              // the parts of tests that ran in parallel, by package and name
	parts      map[string]float64           // what they took, by package and test: go test counts it only for them
}

// handle handles an event of a test, of a package, or of the build, which has no package.
func (r *reporter) handle(e event) error {
	if e.Package == "" {
		_, err := io.WriteString(r.out, e.Output)
		return err
	}
	tests := r.outputs[e.Package]
	if tests == nil {
		tests = map[string]string{}
		r.outputs[e.Package] = tests
	}
	switch {
	case e.Action == "output":
		tests[e.Test] = add(tests[e.Test], e.Output)
	case e.Action == "pause":
		r.parallel[e.Package+" "+e.Test] = true
	case e.Action != "pass" && e.Action != "fail" && e.Action != "skip":
	case e.Test != "":
		return r.endTest(e)
	default:
		return r.endPackage(e)
	}
	return nil
}

// endTest forgets the output of a test that has not failed, and writes its time and that of its parts.
func (r *reporter) endTest(e event) error {
	if e.Action != "fail" {
		delete(r.outputs[e.Package], e.Test)
	}
	test, _, isPart := strings.Cut(e.Test, "/")
	whole := e.Package + " " + test
	if isPart {
		if r.parallel[e.Package+" "+e.Test] {
			r.parts[whole] += e.Elapsed
		}
		return nil
	}
	if e.Action == "skip" {
		return nil
	}
	_, err := fmt.Fprintf(r.times, "%7.2fs  %s  %s\n", e.Elapsed+r.parts[whole], e.Package, e.Test)
	return err
}

// endPackage prints the output of the tests that have not passed, parents before their children, then the package's.
func (r *reporter) endPackage(e event) error {
	tests := r.outputs[e.Package]
	delete(r.outputs, e.Package)
	own := tests[""]
	delete(tests, "")
	if e.Action != "fail" {
		tests, own = nil, lastLine(own)
	}
	for _, test := range slices.Sorted(maps.Keys(tests)) {
		if _, err := io.WriteString(r.out, tests[test]); err != nil {
			return err
		}
	}
	_, err := io.WriteString(r.out, own)
	return err
}

// add adds to the output of a test in the order of go test: the result before the rest, and not that a test begins.
func add(output, more string) string {
	trimmed := strings.TrimLeft(more, " ")
	switch {
	case strings.HasPrefix(trimmed, "=== "):
		return output
	case strings.HasPrefix(trimmed, "--- "):
		return more + output
	}
	return output + more
}

// lastLine is what go test prints for a package that passes.
func lastLine(output string) string {
	lines := strings.SplitAfter(strings.TrimSuffix(output, "\n")+"\n", "\n")
	return lines[len(lines)-2]
}
