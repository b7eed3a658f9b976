package main

import (
	_ "embed" // the scripts
	"fmt"
	"io"
	"strings"
	"text/template"

	"github.com/alecthomas/kong"
)

// completionCmd prints what makes a shell complete commands and flags.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: ${enum}."`
}

// Run prints the script of a shell. It has all commands in it, and does not call this binary.
func (c completionCmd) Run(app *kong.Kong, stdout io.Writer) error {
	scripts, err := template.New("").Funcs(template.FuncMap{"quote": shellQuote}).Parse(completionScripts)
	if err != nil {
		return fmt.Errorf("parse the scripts: %w", err)
	}
	return scripts.ExecuteTemplate(stdout, c.Shell, places(app.Model.Node, ""))
}

//go:embed completion.tmpl
var completionScripts string

// place is a command in a command line, and what may follow it.
type place struct {
	// Path has a space before each word; empty for the program itself.
	Path string
	// Words are the commands, then the flags with their dashes.
	Words []completed
}

// completed is a word that a shell proposes.
type completed struct{ Word, Help string }

// Flag is the flag's name, or empty for a command.
func (w completed) Flag() string {
	name, isFlag := strings.CutPrefix(w.Word, "--")
	if !isFlag {
		return ""
	}
	return name
}

// places lists a command and all below it, each before its own.
func places(n *kong.Node, path string) []place {
	own := place{Path: path}
	var below []place
	for _, child := range n.Children {
		if !child.Hidden {
			own.Words = append(own.Words, completed{child.Name, child.Help})
			below = append(below, places(child, path+" "+child.Name)...)
		}
	}
	for _, flags := range n.AllFlags(true) {
		for _, f := range flags {
			own.Words = append(own.Words, completed{"--" + f.Name, f.Help})
		}
	}
	return append([]place{own}, below...)
}

// shellQuote quotes a text for all three shells. Fish alone knows a backslash within quotes, so texts have none.
func shellQuote(text string) string {
	return "'" + strings.NewReplacer(`\`, `/`, `'`, `’`).Replace(text) + "'"
}
