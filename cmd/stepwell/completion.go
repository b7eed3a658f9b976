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

// Help returns the detailed help, which kong appends to the short one.
func (completionCmd) Help() string {
	return `Load the script in the shell's startup file:

    bash: eval "$(stepwell completion bash)" in ~/.bashrc
    zsh:  eval "$(stepwell completion zsh)" in ~/.zshrc, after compinit
    fish: stepwell completion fish | source, in ~/.config/fish/config.fish`
}

// Run prints the script.
func (c completionCmd) Run(stdout io.Writer) error {
	_, err := io.WriteString(stdout, completion.Scripts[c.Shell])
	return err
}

// completeCmd is the hidden command that the completion scripts call.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints the candidates for the last word, one per line, each with a tab and its help.
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
