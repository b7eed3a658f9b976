package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/flow/docschema"
	"github.com/stepwell-dev/stepwell/flow/flowtest"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type flowsCmd struct {
	List listFlowsCmd `cmd:"" help:"List the flows."`
	Show showFlowCmd  `cmd:"" help:"Print the document of a flow."`
	Put  putFlowCmd   `cmd:"" help:"Store a document as the newest version of its flow."`

	Versions flowVersionsCmd `cmd:"" help:"List the versions of a flow, and their aliases."`
	Alias    putAliasCmd     `cmd:"" help:"Have an alias point to a version."`
	Unalias  removeAliasCmd  `cmd:"" help:"Remove an alias."`
	Retire   retireFlowCmd   `cmd:"" help:"End the new runs of a version, for good."`

	Check  checkFlowCmd  `cmd:"" group:"documents" help:"Print all faults of a document."`
	Test   testFlowsCmd  `cmd:"" group:"documents" help:"Run tests of flows, without a server."`
	Schema flowSchemaCmd `cmd:"" group:"documents" help:"Print the JSON Schema of documents, for editors."`
}

// faultText returns a fault as compilers print it, without the name of the file.
func faultText(f api.Fault) string {
	text := fmt.Sprintf("%d:%d: ", f.Line, f.Column)
	if f.Path != "" {
		text += f.Path + ": "
	}
	return escape(text + f.Message)
}

var flowColumns = []column[api.Flow]{
	{"NAME", func(f api.Flow) any { return f.Name }},
	{"VERSION", func(f api.Flow) any { return f.Version }},
	{"DEPLOYMENT", func(f api.Flow) any { return f.Deployment }},
	{"CREATED", func(f api.Flow) any { return timestamp(f.CreatedAt.Time) }},
}

type listFlowsCmd struct{}

// Run lists the flows.
func (c listFlowsCmd) Run(ctx context.Context, s *Session) error {
	return listUnpaged(ctx, s, path("flows"), nil, flowColumns)
}

type showFlowCmd struct {
	Name    string `arg:"" help:"The flow's name."`
	Version int    `placeholder:"NUMBER" help:"The version; by default the newest."`
}

// Run prints the document.
func (c showFlowCmd) Run(ctx context.Context, s *Session) error {
	query := url.Values{}
	if c.Version != 0 {
		query.Set("version", strconv.Itoa(c.Version))
	}
	var f api.Flow
	raw, err := s.client.get(ctx, path("flows", c.Name), query, &f)
	if err != nil {
		return err
	}
	if s.json {
		return s.printJSON(raw)
	}
	if f.Document == "" {
		return errors.New("the key may not see payloads, and so no documents: use one with the role read, write or admin")
	}
	_, err = fmt.Fprint(s.Stdout, f.Document)
	return err
}

type putFlowCmd struct {
	File   string `arg:"" help:"The document, in YAML or JSON."`
	DryRun bool   `help:"Only check the document."`
}

// Run stores the document, or prints all of its faults.
func (c putFlowCmd) Run(ctx context.Context, s *Session) error {
	document, err := os.ReadFile(c.File)
	if err != nil {
		return usageErrorf("%v", err)
	}
	var f api.Flow
	body := jsonBody{"document": string(document), "dryRun": c.DryRun}.omitZero()
	raw, err := s.client.call(ctx, http.MethodPost, path("flows"), body, &f)
	if err != nil {
		return err
	}
	for _, w := range f.Warnings {
		s.note("warning: %s", faultText(w))
	}
	if c.DryRun {
		return s.printResult(raw, "%s would be version %d of %s", c.File, f.Version, f.Name)
	}
	return s.printResult(raw, "%s is version %d of %s", c.File, f.Version, f.Name)
}

type flowVersionsCmd struct {
	Name string `arg:"" help:"The flow's name."`
}

// Run lists the versions.
func (c flowVersionsCmd) Run(ctx context.Context, s *Session) error {
	var f api.Flow
	raw, err := s.client.get(ctx, path("flows", c.Name), nil, &f)
	if err != nil {
		return err
	}
	if s.json {
		return s.printJSON(raw)
	}
	p := tablePrinter[api.Flow]{Session: s, columns: []column[api.Flow]{
		{"VERSION", func(v api.Flow) any { return v.Version }},
		{"ALIASES", func(v api.Flow) any { return strings.Join(aliasesOf(f, v.Version), " ") }},
		{"CREATED", func(v api.Flow) any { return v.CreatedAt }},
		{"RETIRED", func(v api.Flow) any { return v.RetiredAt }},
	}}
	return p.table(f.Versions)
}

func aliasesOf(f api.Flow, version int64) (names []string) {
	for _, a := range f.Aliases {
		if a.Version == version {
			names = append(names, a.Alias)
		}
	}
	return names
}

type putAliasCmd struct {
	Name    string `arg:"" help:"The flow's name."`
	Alias   string `arg:"" help:"The alias, such as prod."`
	Version int    `arg:"" help:"The version."`
}

// Run moves the alias, or creates it.
func (c putAliasCmd) Run(ctx context.Context, s *Session) error {
	return s.change(ctx, http.MethodPut, path("flows", c.Name, "aliases", c.Alias), jsonBody{"version": c.Version},
		"%s@%s is version %d", c.Name, c.Alias, c.Version)
}

type removeAliasCmd struct {
	Name  string `arg:"" help:"The flow's name."`
	Alias string `arg:"" help:"The alias."`
}

// Run removes the alias.
func (c removeAliasCmd) Run(ctx context.Context, s *Session) error {
	return s.client.delete(ctx, path("flows", c.Name, "aliases", c.Alias))
}

type retireFlowCmd struct {
	Name    string `arg:"" help:"The flow's name."`
	Version int    `arg:"" help:"The version."`
}

// Run retires the version.
func (c retireFlowCmd) Run(ctx context.Context, s *Session) error {
	return s.change(ctx, http.MethodPost, path("flows", c.Name, "versions", strconv.Itoa(c.Version), "retire"), nil,
		"version %d of %s is retired", c.Version, c.Name)
}

// readFlow reads a document from a file. Its faults are an error with [ExitUsage].
func readFlow(file string) (*flow.Program, error) {
	document, err := os.ReadFile(file) //nolint:gosec // the user names it
	if err != nil {
		return nil, usageErrorf("%v", err)
	}
	p, err := flow.Parse(document)
	if err != nil {
		return nil, usageErrorf("%s:\n%w", file, err)
	}
	return p, nil
}

type checkFlowCmd struct {
	File string `arg:"" help:"The document, in YAML or JSON."`
}

// Run checks the document, and prints what is probably not meant in it.
func (c checkFlowCmd) Run(console Console) error {
	p, err := readFlow(c.File)
	if err != nil {
		return err
	}
	for _, w := range p.Warnings {
		console.note("warning: %s", w)
	}
	_, err = fmt.Fprintf(console.Stdout, "%s is a flow: %s, %s\n", c.File, p.Name, counted(len(p.Graph().Steps), "step"))
	return err
}

type testFlowsCmd struct {
	Files []string `arg:"" help:"Files with tests, in YAML or JSON."`
}

// Run runs the tests. It fails if one of them does.
func (c testFlowsCmd) Run(console Console) error {
	failed, all := 0, 0
	for _, file := range c.Files {
		text, err := os.ReadFile(file) //nolint:gosec // the user names it
		if err != nil {
			return usageErrorf("%v", err)
		}
		f, err := flowtest.Read(text)
		if err != nil {
			return usageErrorf("%s: %w", file, err)
		}
		p, err := readFlow(filepath.Join(filepath.Dir(file), f.Flow))
		if err != nil {
			return err
		}
		for _, test := range f.Tests {
			ok, err := runFlowTest(console, file, p, test)
			if err != nil {
				return err
			}
			if all++; !ok {
				failed++
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d tests failed", failed, all)
	}
	return nil
}

// runFlowTest runs a test, and prints how it ended.
func runFlowTest(console Console, file string, p *flow.Program, test flowtest.Test) (ok bool, err error) {
	differences, err := test.Run(p)
	if err != nil {
		return false, usageErrorf("%s: %s: %w", file, test.Name, err)
	}
	word := "ok  "
	if len(differences) > 0 {
		word = "FAIL"
	}
	_, err = fmt.Fprintf(console.Stdout, "%s %s: %s\n", word, file, escape(test.Name))
	for _, d := range differences {
		for line := range strings.Lines(d) {
			_, printErr := fmt.Fprintf(console.Stdout, "       %s\n", escape(strings.TrimSuffix(line, "\n")))
			err = errors.Join(err, printErr)
		}
	}
	return len(differences) == 0, err
}

type flowSchemaCmd struct{}

// Run prints the schema.
func (flowSchemaCmd) Run(console Console) error {
	_, err := console.Stdout.Write(docschema.JSON)
	return err
}
