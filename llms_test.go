package stepwell_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestIndexForModels: docs/llms.txt is the index of docs/README.md in the form of llmstxt.org: what Stepwell is, and each
// page with what it answers.
func TestIndexForModels(t *testing.T) {
	t.Parallel()
	var want strings.Builder
	want.WriteString("# Stepwell\n\n> Durable workflows for serverless functions, on nothing but Postgres: one Go binary keeps every run " +
		"as an append-only log of events, and drives it by calling your functions over HTTP.\n\n" +
		"`make llms` writes all pages into one file, bin/llms-full.txt.\n")
	row := regexp.MustCompile(`^\| \[([^]]+)\]\(([^)#]+\.md)\) \| (.+) \|$`)
	pages := 0
	for line := range strings.Lines(text(t, "docs/README.md")) {
		line = strings.TrimSpace(line)
		if m := row.FindStringSubmatch(line); m != nil {
			want.WriteString("- [" + m[1] + "](" + m[2] + "): " + m[3] + "\n")
			pages++
		} else if strings.HasPrefix(line, "## ") {
			want.WriteString("\n" + line + "\n\n")
		}
	}
	if pages < 30 {
		t.Errorf("found only %d pages", pages)
	}
	const name = "docs/llms.txt"
	if *update {
		if err := os.WriteFile(name, []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text(t, name) != want.String() {
		t.Errorf("%s differs from docs/README.md: rewrite it with go test . -update", name)
	}
}
