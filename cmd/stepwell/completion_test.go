package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/cmd/stepwell/remote"
)

// output returns what a command prints.
func output(t *testing.T, args ...string) string {
	t.Helper()
	var out strings.Builder
	if err := execute(t.Context(), args, remote.Console{Stdout: &out, Stderr: t.Output()}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestBashCompletesCommandsAndFlags(t *testing.T) {
	t.Parallel()
	script := output(t, "completion", "bash")
	for line, want := range map[string][]string{
		"stepwell ru":                     {"runs"},
		"stepwell runs canc":              {"cancel"},
		"stepwell --json runs list --wor": {"--workflow"},
		"stepwell runs list --api":        {"--api-key"}, // a flag of all commands
		"stepwell health canc":            {},
	} {
		test := fmt.Sprintf("%s\nCOMP_WORDS=(%s)\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_stepwell\necho \"${COMPREPLY[@]}\"", script, line)
		out, err := exec.CommandContext(t.Context(), "bash", "-c", test).CombinedOutput()
		if got := strings.Fields(string(out)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %q (%v), want %q", line, got, err, want)
		}
	}
}

// TestScriptsAndManualHaveAllCommands: the release tries the scripts of the other shells, which few machines have.
func TestScriptsAndManualHaveAllCommands(t *testing.T) {
	t.Parallel()
	texts := map[string]string{"man": output(t, "man")}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		texts[shell] = output(t, "completion", shell)
	}
	for _, leaf := range mustParser(t).Model.Leaves(true) {
		for name, text := range texts {
			want := "' " + leaf.Path() + "'"
			if name == "man" {
				want = "\n.SS " + roff(leaf.Path())
			}
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %s", name, leaf.Path())
			}
		}
	}
}

func TestRoffEscapesWhatManInterprets(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`a-b`: `a\-b`, `.TH`: `\&.TH`, `'x`: `\&'x`, `\n`: `\en`, "two\nlines": "two lines", `"q"`: `\(dqq\(dq`,
	} {
		if got := roff(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
