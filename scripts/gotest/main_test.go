package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// module is the code of a small module with tests.
var module = map[string]string{
	"go.mod": "module example.test\n",
	"passes/passes_test.go": `package passes
import ("testing"; "time")
func TestPasses(t *testing.T) {
	t.Log("not to be seen")
	for _, name := range []string{"part", "other part"} {
		t.Run(name, func(t *testing.T) { t.Parallel(); time.Sleep(70 * time.Millisecond) })
	}
	t.Run("serial part", func(*testing.T) { time.Sleep(70 * time.Millisecond) })
}
func TestSkips(t *testing.T) { t.Skip("not to be seen") }
`,
	"fails/fails_test.go": `package fails
import "testing"
func TestFails(t *testing.T) {
	t.Log("how it began")
	t.Run("part", func(t *testing.T) { t.Error("what is wrong") })
	t.Run("other part", func(t *testing.T) { t.Log("not to be seen") })
}
func TestPasses(t *testing.T) { t.Log("not to be seen") }
`,
	"panics/panics_test.go": `package panics
import "testing"
func TestPanics(t *testing.T) { panic("what broke") }
`,
	"broken/broken_test.go": "package broken\nvar x int = true\n",
	"none/none.go":          "package none\n",
}

// TestFailuresAreThoseOfGoTest: of what passed, nothing is printed but its package.
func TestFailuresAreThoseOfGoTest(t *testing.T) {
	t.Parallel()
	code, out, times := runModule(t, "./...")
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if strings.Contains(out, "not to be seen") || strings.Contains(out, "=== ") {
		t.Errorf("more than go test prints:\n%s", out)
	}
	for _, want := range []string{
		`--- FAIL: TestFails \([0-9.]+s\)\n    fails_test.go:4: how it began\n` +
			`--- FAIL: TestFails/part \([0-9.]+s\)\n    fails_test.go:5: what is wrong\n` +
			`FAIL\nFAIL\texample.test/fails\t[0-9.]+s\n`,
		`--- FAIL: TestPanics \([0-9.]+s\)\n(.*\n)*?panic: what broke`,
		`broken_test.go:2:13: cannot use true`,
		`FAIL\texample.test/broken \[build failed\]\n`,
		`(^|\n)ok  \texample.test/passes\t([0-9.]+s|\(cached\))\n`,
		`\?   \texample.test/none\t\[no test files\]\n`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in:\n%s", want, out)
		}
	}
	for _, want := range []string{`[0-9.]+s  example.test/fails  TestFails`, `(0\.[2-9]|[1-9].*).s  example.test/passes  TestPasses`} {
		if !regexp.MustCompile(`(?m)^ +` + want + `$`).MatchString(times) {
			t.Errorf("no time of %s in:\n%s", want, times)
		}
	}
	if strings.Contains(times, "TestSkips") || strings.Contains(times, "/part") {
		t.Errorf("times of more than tests that ran:\n%s", times)
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		want int
	}{{"./passes", 0}, {"./absent", 1}, {"-count=x", 2}} {
		if code, out, _ := runModule(t, c.args); code != c.want {
			t.Errorf("%s: exit code %d, want %d; %s", c.args, code, c.want, out)
		}
	}
}

// runModule tests the module.
func runModule(t *testing.T, arg string) (code int, out, times string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range module {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var printed strings.Builder
	code, err := run(filepath.Join(dir, "times"), []string{"-C", dir, arg}, &printed)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "times"))
	if err != nil {
		t.Fatal(err)
	}
	return code, printed.String(), string(data)
}
