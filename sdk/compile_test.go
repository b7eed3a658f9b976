package stepwell_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// exported returns what opens the export data of the SDK and of all packages that it imports.
func exported(t *testing.T) func(path string) (io.ReadCloser, error) {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, fmt.Errorf("there is no package %s", path)
		}
		return os.Open(files[path])
	}
}

// TestWhatMustNotCompile checks that the compiler refuses wrong types. Each pair is a line that compiles and one that
// must not.
func TestWhatMustNotCompile(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	imports := importer.ForCompiler(files, "gc", exported(t))
	check := func(line string) error {
		file, err := parser.ParseFile(files, "snippet.go", `package snippet

import (
	"context"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

var (
	order    = stepwell.NewWorkflow[int, string]("order", stepwell.WithInbox(notes))
	charge   = stepwell.NewStep[int, string]("charge")
	vote     = stepwell.NewHook[int]("vote")
	paid     = stepwell.NewSignal[int]("paid")
	notes    = stepwell.NewInbox[string]("notes")
	balance  = stepwell.NewStoreKey[int]("balance")
	declined = stepwell.NewErrorKind[int]("declined")
)

func step(context.Context, int) (string, error)                { return "", nil }
func sends(context.Context) error                              { return nil }
func needsContext(context.Context)                             {}
func text(w *stepwell.Context, s string) (string, error)             { return s, nil }
func workflow(w *stepwell.Context, n int) (string, error)            { return "", nil }
func other(w *stepwell.Context, s string) (int, error)               { return 0, nil }
func signalled(*stepwell.Context, stepwell.Received[int]) (string, error) { return "", nil }
func undo(*stepwell.Context, int, *string) error                     { return nil }
func wrongUndo(*stepwell.Context, string, *string) error             { return nil }

var _ = time.Second

func run(w *stepwell.Context, ctx context.Context, c *stepwell.Future[string]) {
	`+line+`
}
`, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		_, err = (&types.Config{Importer: imports}).Check("snippet", files, []*ast.File{file}, nil)
		return err
	}
	for name, c := range map[string]struct{ good, bad, why string }{
		"a Context is no context": {`needsContext(ctx)`, `needsContext(w)`, "does not implement context.Context"},
		"the input of a step":     {`_, _ = charge.Run(w, 1)`, `_, _ = charge.Run(w, "1")`, "cannot use"},
		"the output of a step":    {`var s string; s, _ = charge.Run(w, 1); _ = s`, `var n int; n, _ = charge.Run(w, 1); _ = n`, "cannot use"},
		"a step with a context":   {`_, _ = charge.Run(w, 1)`, `_, _ = charge.Run(ctx, 1)`, "cannot use"},
		"a step's function":       {`charge.Bind(step)`, `charge.Bind(func(context.Context, string) (string, error) { return "", nil })`, "cannot use"},
		"a workflow's function":   {`order.Bind(workflow)`, `order.Bind(other)`, "cannot use"},
		"a workflow as a step":    {`charge.Bind(step)`, `charge.Bind(workflow)`, "cannot use"},
		"the future of a step":    {`var f *stepwell.Future[string] = charge.Go(w, 1); _ = f`, `var f *stepwell.Future[int] = charge.Go(w, 1); _ = f`, "cannot use"},
		"a child's input":         {`order.Child(w, 1)`, `order.Child(w, "1")`, "cannot use"},
		"a child's output":        {`var s string; s, _ = c.Await(w); _ = s`, `var n int; n, _ = c.Await(w); _ = n`, "cannot use"},
		"a step as a child":       {`order.Child(w, 1)`, `charge.Child(w, 1)`, "charge.Child undefined"},
		"a hook's payload":        {`var n int; n, _ = vote.Open(w).Receive(w); _ = n`, `var s string; s, _ = vote.Open(w).Receive(w); _ = s`, "cannot use"},
		"a case of a select":      {`_, _ = stepwell.Select(w, stepwell.On(charge.Go(w, 1), text))`, `_, _ = stepwell.Select(w, stepwell.On(charge.Go(w, 1), other), stepwell.On(charge.Go(w, 1), text))`, "does not match"},
		"a signal's data":         {`_, _ = stepwell.Select(w, stepwell.On(paid.Wait(w), signalled))`, `_, _ = stepwell.Select(w, stepwell.On(paid.Wait(w), text))`, "does not match"},
		"a message of an inbox":   {`var s string; s, _ = notes.Receive(w); _ = s`, `var n int; n, _ = notes.Receive(w); _ = n`, "cannot use"},
		"a value of the store":    {`balance.Set(w, 1)`, `balance.Set(w, "1")`, "cannot use"},
		"the store of a context":  {`balance.Set(stepwell.Store(ctx), 1)`, `balance.Set(ctx, 1)`, "does not implement stepwell.Storer"},
		"details of an error":     {`_ = declined.New(1)`, `_ = declined.New("1")`, "cannot use"},
		"an undo of another step": {`_, _ = charge.Run(w, 1, charge.Undo(undo))`, `_, _ = charge.Run(w, 1, charge.Undo(wrongUndo))`, "cannot use"},
		"an option of a child":    {`order.Child(w, 1, stepwell.LeaveOnParentEnd())`, `_, _ = charge.Run(w, 1, stepwell.LeaveOnParentEnd())`, "cannot use"},
		"an option of a hook":     {`vote.Open(w, stepwell.Token("t"))`, `vote.Open(w, stepwell.Attempts(3))`, "cannot use"},
		"what is no source":       {`_ = stepwell.On(paid.Wait(w), signalled)`, `_ = stepwell.On(time.After(time.Second), signalled)`, "does not match"},
		"the function of a map":   {`_, _ = stepwell.Map(w, []string{"a"}, text)`, `_, _ = stepwell.Map(w, []int{1}, text)`, "does not match"},
		"a Do without a context":  {`_, _ = stepwell.Do(w, "x", func(context.Context) (int, error) { return 1, nil })`, `_, _ = stepwell.Do(w, "x", func(*stepwell.Context) (int, error) { return 1, nil })`, "does not match"},
		"an option of a Do":       {`_ = stepwell.Exec(w, "x", sends, stepwell.Attempts(3))`, `_ = stepwell.Exec(w, "x", sends, stepwell.Limits())`, "does not implement stepwell.DoOption"},
		"a call of a Do":          {`_, _ = charge.Run(w, 1, stepwell.Remote(), stepwell.ID("x"))`, `_ = stepwell.Exec(w, "x", sends, stepwell.Remote())`, "does not implement stepwell.DoOption"},
		"an undo of a Do":         {`_, _ = charge.Run(w, 1, charge.Undo(undo))`, `_ = stepwell.Exec(w, "x", sends, charge.Undo(undo))`, "does not implement stepwell.DoOption"},
		"a timeout of a Do":       {`_, _ = charge.Run(w, 1, stepwell.Timeout(1))`, `_ = stepwell.Exec(w, "x", sends, stepwell.Timeout(1))`, "does not implement stepwell.DoOption"},
		"limits of a child":       {`_, _ = order.Start(ctx, nil, 1, stepwell.Limits(), stepwell.Priority(1))`, `order.Child(w, 1, stepwell.Limits())`, "does not implement stepwell.ChildOption"},
		"attributes of a step":    {`order.Child(w, 1, stepwell.Attribute("a", "b"), stepwell.Timeout(1))`, `_, _ = charge.Run(w, 1, stepwell.Attribute("a", "b"))`, "does not implement stepwell.StepOption"},
		"what is not kept":        {`_ = paid.Send(ctx, nil, 1, stepwell.KeepFor(1), stepwell.MessageID("x"))`, `_ = notes.Send(ctx, nil, "run", "x", stepwell.KeepFor(1))`, "does not implement stepwell.SendOption"},
		"an ID of a start":        {`order.Child(w, 1, stepwell.ID("x"), stepwell.Deployment("d"))`, `_, _ = order.Start(ctx, nil, 1, stepwell.ID("x"))`, "does not implement stepwell.StartOption"},
		"a token of a step":       {`stepwell.OpenWebhook(w, "x", stepwell.Token("t"))`, `_, _ = charge.Run(w, 1, stepwell.Token("t"))`, "does not implement stepwell.StepOption"},
		"an inbox of a workflow":  {`stepwell.WithInbox(notes)`, `stepwell.WithInbox(vote)`, "cannot use"},
	} {
		if err := check(c.good); err != nil {
			t.Errorf("%s: the good line does not compile: %v", name, err)
		}
		if err := check(c.bad); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.why)
		}
	}
}

// TestTableOfOptions checks the table of options in the documentation against their types.
func TestTableOfOptions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "docs", "sdk-go.md"))
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := importer.ForCompiler(token.NewFileSet(), "gc", exported(t)).Import("github.com/stepwell-dev/stepwell/sdk")
	if err != nil {
		t.Fatal(err)
	}
	nouns := []string{"StepOption", "DoOption", "ChildOption", "StartOption"}
	listed := map[string]bool{}
	_, table, _ := strings.Cut(string(text), "| option | step | `Do` | child | start |\n|---|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		for name := range strings.SplitSeq(strings.ReplaceAll(cells[1], "`", ""), ",") {
			name = strings.TrimSpace(name)
			listed[name] = true
			for i, noun := range nouns {
				fn, ok := pkg.Scope().Lookup(name).(*types.Func)
				is := ok && types.Implements(fn.Signature().Results().At(0).Type(), interfaceOf(pkg, noun))
				if said := strings.TrimSpace(cells[2+i]) == "yes"; !ok || is != said {
					t.Errorf("the table says of %s, %s: %v", name, noun, said)
				}
			}
		}
	}
	for _, name := range pkg.Scope().Names() {
		fn, ok := pkg.Scope().Lookup(name).(*types.Func)
		if !ok || !fn.Exported() || fn.Signature().Results().Len() != 1 || listed[name] {
			continue
		}
		for _, noun := range nouns {
			if types.Implements(fn.Signature().Results().At(0).Type(), interfaceOf(pkg, noun)) {
				t.Errorf("the table lacks %s", name)
			}
		}
	}
}

func interfaceOf(pkg *types.Package, name string) *types.Interface {
	return pkg.Scope().Lookup(name).Type().Underlying().(*types.Interface)
}
