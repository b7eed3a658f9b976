package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/cmd/stepwell/remote"
)

// manCmd prints the manual page.
type manCmd struct{}

// Run prints the page in the language of man: all commands with their arguments and flags, and the exit codes.
func (manCmd) Run(app *kong.Kong, stdout io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH STEPWELL 1 \"\" %q\n", roff("Stepwell "+version()))
	b.WriteString(".SH NAME\nstepwell \\- durable workflows on nothing but Postgres\n" +
		".SH SYNOPSIS\n.B stepwell\n.I COMMAND\n[\\fIARGUMENT\\fR | \\fIFLAG\\fR]...\n.SH COMMANDS\n")
	for _, leaf := range app.Model.Leaves(true) {
		fmt.Fprintf(&b, ".SS %s\n%s\n", roff(usage(leaf)), roff(leaf.Help))
		manFlags(&b, leaf.Flags)
	}
	b.WriteString(".SH FLAGS OF ALL COMMANDS THAT CALL THE API\n")
	manFlags(&b, app.Model.Flags)
	b.WriteString(".SH EXIT STATUS\n")
	for _, e := range remote.Exits {
		fmt.Fprintf(&b, ".TP\n%d\n%s\n", e.Code, roff(e.Meaning))
	}
	b.WriteString(".SH SEE ALSO\n" + roff("https://github.com/stepwell-dev/stepwell/tree/main/docs") + "\n")
	_, err := io.WriteString(stdout, b.String())
	return err
}

// usage is a command with its arguments.
func usage(n *kong.Node) string {
	text := n.Path()
	for _, arg := range n.Positional {
		text += " " + arg.ShortSummary()
	}
	return text
}

// manFlags writes a list of flags.
func manFlags(b *strings.Builder, flags []*kong.Flag) {
	for _, f := range flags {
		if f.Hidden || f.Name == "help" {
			continue
		}
		name := "--" + f.Name
		if !f.IsBool() {
			name += "=" + f.FormatPlaceHolder()
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR\n%s\n", roff(name), roff(f.Help))
	}
}

// roff escapes a line of text.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`, "\n", " ").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
