package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/cmd/stepwell/remote"
)

const cliDoc = "../../docs/cli.md"

func mustParser(t *testing.T) *kong.Kong {
	t.Helper()
	p, err := newParser(new(cli), remote.Console{Stdout: t.Output(), Stderr: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestDocs: docs/cli.md lists all commands with their help, and all exit codes.
func TestDocs(t *testing.T) {
	t.Parallel()
	doc := mustRead(t, cliDoc)
	var commands, exits strings.Builder
	commands.WriteString("| command | description |\n|---|---|\n")
	for _, leaf := range mustParser(t).Model.Leaves(true) {
		fmt.Fprintf(&commands, "| `%s` | %s |\n", usage(leaf), leaf.Help)
		if !regexp.MustCompile(`(?m)^ .*stepwell ` + leaf.Path() + `\b`).MatchString(doc) {
			t.Errorf("%s: no example of stepwell %s", cliDoc, leaf.Path())
		}
	}
	exits.WriteString("| code | meaning |\n|---|---|\n")
	for _, e := range remote.Exits {
		fmt.Fprintf(&exits, "| %d | %s |\n", e.Code, e.Meaning)
	}
	want := replaceSection(t, replaceSection(t, doc, "commands", commands.String()), "exit codes", exits.String())
	if *update {
		if err := os.WriteFile(cliDoc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, doc); diff != "" {
		t.Errorf("%s (-want +got; rewrite it with -update):\n%s", cliDoc, diff)
	}
}

// replaceSection replaces the text between the document's markers of that name.
func replaceSection(t *testing.T, doc, name, text string) string {
	t.Helper()
	part := regexp.MustCompile(`(?s)(<!-- ` + name + `: [^\n]*-->\n).*?(<!-- end -->)`)
	if len(part.FindAllString(doc, -1)) != 1 {
		t.Fatalf("%s has no section %q", cliDoc, name)
	}
	return part.ReplaceAllStringFunc(doc, func(old string) string {
		m := part.FindStringSubmatch(old)
		return m[1] + text + m[2]
	})
}

// TestDocExamplesParse: the command lines in the documents are valid.
func TestDocExamplesParse(t *testing.T) {
	t.Parallel()
	example := regexp.MustCompile(`^ {3} (?:.*[ (|/])?stepwell ([^|<>;]*)`)
	found, parser := 0, mustParser(t)
	for _, name := range []string{
		cliDoc, "../../README.md", "../../docs/configuration.md", "../../docs/operations.md", "../../docs/signals.md",
		"../../docs/collections.md", "../../docs/flows.md", "../../docs/goals.md", "../../docs/schedules.md", "../../docs/limits.md",
		"../../docs/triggers.md", "../../docs/agents.md", "../../docs/webhooks.md", "../../examples/function-go/README.md",
		"../../examples/function-python/README.md",
		"../../examples/sdk-go/README.md",
	} {
		for line := range strings.Lines(mustRead(t, name)) {
			m := example.FindStringSubmatch(strings.TrimRight(line, "\n"))
			if m == nil {
				continue
			}
			found++
			command, _, _ := strings.Cut(m[1], " #")
			if _, err := forgetful(parser).Parse(words(strings.TrimRight(command, ` )"&`))); err != nil {
				t.Errorf("%s: %s: %v", name, strings.TrimSpace(line), err)
			}
		}
	}
	if found < 50 {
		t.Errorf("found only %d examples", found)
	}
}

// TestBannerOfDevShowsGo: the commands that it shows are valid, and those that ask the server come after its address is
// set: a shell sets the variables of a line after it has executed the commands in it.
func TestBannerOfDevShowsGo(t *testing.T) {
	t.Parallel()
	parser, found := mustParser(t), 0
	before, _, ok := strings.Cut(devBanner, "signing-keys create")
	if line := before[strings.LastIndex(before, "\n"):]; !ok || strings.Contains(line, "STEPWELL_URL") ||
		!strings.Contains(before, "export STEPWELL_URL=%[1]s\n") || !strings.Contains(devBanner, "docs/sdk-go.md") {
		t.Errorf("STEPWELL_URL is not set before it is used, or there is no Go:%s", devBanner)
	}
	for _, m := range regexp.MustCompile(`\(stepwell ([^)]*)\)`).FindAllStringSubmatch(devBanner, -1) {
		found++
		if _, err := forgetful(parser).Parse(words(m[1])); err != nil {
			t.Errorf("%s: %v", m[0], err)
		}
	}
	if found == 0 {
		t.Error("the banner shows no command")
	}
}

// words splits a line as a shell does. It supports single quotes only.
func words(line string) (list []string) {
	for _, m := range regexp.MustCompile(`(?:'[^']*'|[^' ])+`).FindAllString(line, -1) {
		list = append(list, strings.ReplaceAll(m, "'", ""))
	}
	return list
}
