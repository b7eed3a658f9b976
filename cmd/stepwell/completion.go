package main

import (
	"fmt"
	"io"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/cmd/stepwell/completion"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: ${enum}."`
}

// Help says where the script goes.
func (completionCmd) Help() string {
	return `The script is for the shell to read when it starts:

    bash: eval "$(stepwell completion bash)" in ~/.bashrc
    zsh:  eval "$(stepwell completion zsh)" in ~/.zshrc, behind compinit
    fish: stepwell completion fish | source, in ~/.config/fish/config.fish`
}

// Run prints the script.
func (c completionCmd) Run(stdout io.Writer) error {
	script, _ := completion.Script(c.Shell)
	_, err := io.WriteString(stdout, script)
	return err
}

// completeCmd is what the scripts call.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints what may stand in place of the last word, a candidate on each line with its meaning behind a tab.
func (c completeCmd) Run(stdout io.Writer, app *kong.Application) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, found := range completion.Candidates(app, words) {
		if _, err := fmt.Fprintf(stdout, "%s\t%s\n", found.Word, found.Help); err != nil {
			return err
		}
	}
	return nil
}
