package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/flow/docschema"
	"github.com/stepwell-dev/stepwell/flow/flowtest"
	"github.com/stepwell-dev/stepwell/flow/replay"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type flowsCmd struct {
	List wholeListCmd[flowRow, none] `cmd:"" at:"flows" help:"List the flows."`
	Show showDocumentCmd             `cmd:"" at:"flows/*" help:"Print the document of a flow."`
	Put  putFlowCmd                  `cmd:"" help:"Store a document as the newest version of its flow."`

	Versions flowVersionsCmd        `cmd:"" help:"List the versions of a flow, and their aliases."`
	Alias    changeCmd[aliasFlags]  `cmd:"" at:"PUT flows/*/aliases/*" says:"$1@$2 is version $version" help:"Have an alias point to a version."`
	Unalias  changeCmd[aliasArgs]   `cmd:"" at:"DELETE flows/*/aliases/*" help:"Remove an alias."`
	Retire   changeCmd[versionArgs] `cmd:"" at:"POST flows/*/versions/*/retire" says:"version $2 of $1 is retired" help:"End the new runs of a version, for good."`

	Check   checkFlowsCmd  `cmd:"" help:"Check a document, or which runs would decide otherwise now."`
	Test    testFlowsCmd   `cmd:"" group:"documents" help:"Run tests of flows, without a server."`
	Diagram diagramFlowCmd `cmd:"" group:"documents" help:"Print a flow as a Mermaid diagram."`
	Schema  flowSchemaCmd  `cmd:"" group:"documents" help:"Print the JSON Schema of documents, for editors."`
}

// faultText returns a fault as compilers print it, without the name of the file.
func faultText(f api.Fault) string {
	text := fmt.Sprintf("%d:%d: ", f.Line, f.Column)
	if f.Path != "" {
		text += f.Path + ": "
	}
	return escape(text + f.Message)
}

type flowRow api.Flow

func (f flowRow) columns() []field {
	return []field{
		{"name", f.Name}, {"version", f.Version}, {"deployment", f.Deployment},
		{"created", f.CreatedAt},
	}
}

// showDocumentCmd prints the document of a flow or a catalog.
type showDocumentCmd struct {
	named
	Version int `placeholder:"NUMBER" help:"The version; by default the newest."`
}

// Run prints the document.
func (showDocumentCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	found, raw, err := sendFor[struct{ Document string }](ctx, k, s)
	switch {
	case err != nil:
		return err
	case s.json:
		return s.printJSON(raw)
	case found.Document == "":
		return errors.New("the key may not see payloads, and so no documents: use one with the role read, write or admin")
	}
	_, err = fmt.Fprint(s.Stdout, found.Document)
	return err
}

type putFlowCmd struct{ documentFile }

// Run stores the document, or prints all of its faults.
func (c putFlowCmd) Run(ctx context.Context, s *Session) error { return c.put(ctx, s, path("flows")) }

// documentFile is a document to be stored as the newest version of a flow or a catalog.
type documentFile struct {
	File   string `arg:"" help:"The document, in YAML or JSON."`
	DryRun bool   `help:"Only check the document."`
}

func (c documentFile) put(ctx context.Context, s *Session, path string) error {
	document, err := os.ReadFile(c.File)
	if err != nil {
		return usageErrorf("%v", err)
	}
	var f api.Flow // a catalog has the same fields, and no warnings
	body := jsonBody{"document": string(document), "dryRun": c.DryRun}.omitZero()
	raw, err := s.client.call(ctx, http.MethodPost, path, body, &f)
	if err != nil {
		return err
	}
	for _, w := range f.Warnings {
		s.note("warning: %s", faultText(w))
	}
	is := "is"
	if c.DryRun {
		is = "would be"
	}
	return s.printResult(raw, "%s %s version %d of %s", c.File, is, f.Version, f.Name)
}

type flowVersionsCmd struct{ named }

// Run lists the versions.
func (c flowVersionsCmd) Run(ctx context.Context, s *Session) error {
	var f api.Flow
	raw, err := s.client.get(ctx, path("flows", c.Name), nil, &f)
	if err != nil || s.json {
		return errors.Join(err, s.printJSON(raw))
	}
	return printItems(s, func(v api.Flow) []field {
		return []field{
			{"version", v.Version}, {"aliases", strings.Join(aliasesOf(f, v.Version), " ")}, {"created", v.CreatedAt},
			{"retired", v.RetiredAt},
		}
	}, f.Versions)
}

func aliasesOf(f api.Flow, version int64) (names []string) {
	for _, a := range f.Aliases {
		if a.Version == version {
			names = append(names, a.Alias)
		}
	}
	return names
}

type aliasArgs struct {
	named
	Alias string `arg:"" help:"The alias, such as prod."`
}

type aliasFlags struct {
	aliasArgs
	Version int `arg:"" field:"version" help:"The version."`
}

type versionArgs struct {
	named
	Version int `arg:"" help:"The version."`
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

type checkFlowsCmd struct {
	File  string   `arg:"" optional:"" help:"A document; without it, each run is checked with that of its version."`
	Since timeFlag `placeholder:"TIME" help:"Decide the runs created since ${time} again, and compare."`
}

// Run checks a document, and replays the logs of runs.
func (c checkFlowsCmd) Run(ctx context.Context, s *Session) error {
	var p *flow.Program
	var err error
	switch {
	case c.File != "":
		p, err = readFlow(c.File)
	case c.Since == "":
		err = usageErrorf("want a document, or --since, or both")
	}
	if err != nil {
		return err
	}
	if p != nil {
		for _, w := range p.Warnings {
			s.note("warning: %s", w)
		}
	}
	if c.Since == "" {
		_, err = fmt.Fprintf(s.Stdout, "%s is a flow: %s, %s\n", c.File, p.Name, counted(len(p.Graph().Steps), "step"))
		return err
	}
	return c.replay(ctx, s, p)
}

// replay has decisions made again by a program, or if it is nil by those of the runs' versions.
func (c checkFlowsCmd) replay(ctx context.Context, s *Session, p *flow.Program) error {
	since, err := c.Since.resolve(s.Now())
	if err != nil {
		return err
	}
	query, checked, differ := url.Values{"createdAfter": {since}}, 0, 0
	if p != nil {
		query.Set("workflow", p.Name)
	}
	programs := map[string]*flow.Program{}
	err = s.entries(ctx, path("runs"), query, paging{All: true}, func(raw json.RawMessage) error {
		var r api.Run
		if err := s.client.decode(raw, &r); err != nil {
			return err
		}
		program := p
		if version, err := s.programOf(ctx, r, programs); err != nil || version == nil {
			return err // it is no flow
		} else if program == nil {
			program = version
		}
		d, err := s.compare(ctx, program, r.ID)
		if checked++; err == nil && d != nil {
			differ++
			_, err = fmt.Fprintf(s.Stdout, "%s %s: %s\n", r.ID, r.Deployment, escape(d.String()))
		}
		return err
	})
	if err == nil && differ > 0 {
		return fmt.Errorf("%d of %d runs would decide otherwise", differ, checked)
	}
	if err == nil {
		_, err = fmt.Fprintf(s.Stdout, "%s would decide what was decided\n", counted(checked, "run"))
	}
	return err
}

// programOf returns the program of a run's version; nil if the run is not that of a flow.
func (s *Session) programOf(ctx context.Context, r api.Run, known map[string]*flow.Program) (*flow.Program, error) {
	name, version, found := strings.Cut(r.Deployment, "@")
	if p, ok := known[r.Deployment]; ok || !found || name != r.Workflow {
		return p, nil
	}
	var f api.Flow
	_, err := s.client.get(ctx, path("flows", name), url.Values{"version": {version}}, &f)
	if err == nil {
		known[r.Deployment], err = flow.Parse([]byte(f.Document))
	}
	if code := ExitCode(err); code == ExitNotFound || code == ExitUsage {
		err = nil // the deployment of an app that has such a name
	}
	return known[r.Deployment], err
}

// compare has the decisions of a run made again.
func (s *Session) compare(ctx context.Context, p *flow.Program, id string) (*replay.Difference, error) {
	l, err := s.runLog(ctx, id)
	if err != nil {
		return nil, err
	}
	var of contract.Run
	if err := json.Unmarshal(l.Run, &of); err != nil {
		return nil, err
	}
	return replay.Compare(ctx, p, of, l.Events)
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

type diagramFlowCmd struct {
	File string `arg:"" help:"The document, in YAML or JSON."`
}

// Run prints the diagram.
func (c diagramFlowCmd) Run(console Console) error {
	p, err := readFlow(c.File)
	if err == nil {
		_, err = fmt.Fprint(console.Stdout, p.Graph().Mermaid())
	}
	return err
}

type flowSchemaCmd struct{}

// Run prints the schema.
func (flowSchemaCmd) Run(console Console) error {
	_, err := console.Stdout.Write(docschema.JSON)
	return err
}
