package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// inShell runs a script in a shell where stepwell is the test binary.
func inShell(t *testing.T, script string, shell ...string) string {
	t.Helper()
	dir := t.TempDir()
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	wrapper := "#!/bin/sh\n" + asCommand + "=1 exec '" + self + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "stepwell"), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(shell[0], append(shell[1:], "-c", script)...)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%s: %v: %s", shell[0], err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// TestCompletionInBash: readline also splits words at "=".
func TestCompletionInBash(t *testing.T) {
	t.Parallel()
	got := inShell(t, `eval "$(stepwell completion bash)"
		complete -p stepwell
		try() { COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _stepwell stepwell; echo "$*: ${COMPREPLY[*]}"; }
		try stepwell runs ''
		try stepwell runs list --status = com
		try stepwell serve --ro
		try stepwell export ''`, "bash", "--norc")
	want := `complete -o default -F _stepwell stepwell
stepwell runs : start list count show why events timeline payload export wait cancel rerun children attributes store send
stepwell runs list --status = com: completed
stepwell serve --ro: --role
stepwell export :`
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// requireShell fails the test if the shell is not installed; make test installs it where it can.
func requireShell(t *testing.T, shell string) {
	t.Helper()
	if _, err := exec.LookPath(shell); err != nil {
		t.Fatal(err)
	}
}

func TestCompletionInOtherShells(t *testing.T) {
	t.Parallel()
	t.Run("fish", func(t *testing.T) {
		t.Parallel()
		requireShell(t, "fish")
		got := inShell(t, `stepwell completion fish | source; complete -C "stepwell runs li"; complete -C "stepwell serve --role=w"`,
			"fish", "--no-config")
		if want := "list\tList runs, newest first.\n--role=worker"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("zsh", func(t *testing.T) {
		t.Parallel()
		requireShell(t, "zsh")
		// zsh completes only in its line editor, so the test replaces the functions that show the candidates.
		got := inShell(t, `compdef() { :; }; _describe() { print -l "${(@P)2}"; }; _files() { print files; }
			eval "$(stepwell completion zsh)"
			words=(stepwell runs li) CURRENT=3; _stepwell; words=(stepwell export ''); _stepwell`, "zsh", "-f")
		if want := "list:List runs, newest first.\nfiles"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
