package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// How much an answer takes of a model's context, in bytes; four are about a token.
const (
	// maxAnswer bounds an answer, and maxText a value in it.
	maxAnswer, maxText = 16 << 10, 1 << 10
	// defaultEntries is how many entries a list has, and maxEntries how many it may have.
	defaultEntries, maxEntries = 20, 100
)

// tool is a command that agents may call. Its answer is what the command prints.
type tool struct {
	name string
	// command is the command, with flags that agents can override.
	command string
	// arguments are the names of the arguments and flags that agents may give.
	arguments   string
	does        *mcp.ToolAnnotations
	description string
}

// What tools do, as clients want to know before they ask a person. Tools that make functions run reach an open world.
var (
	readsOnly = &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(false)}
	adds      = &mcp.ToolAnnotations{DestructiveHint: new(false), OpenWorldHint: new(true)}
	ends      = &mcp.ToolAnnotations{DestructiveHint: new(true), IdempotentHint: true, OpenWorldHint: new(true)}
)

var tools = []tool{
	{
		"whoami", "whoami", "", readsOnly,
		"Says whose API key this is: its project, and its role, which decides what it may do.",
	},
	{
		"list_attention", "attention", "", readsOnly,
		"Lists what needs a person in the project, the most urgent first: blocked and stranded runs, deployments " +
			"that cannot be reached, workflows that fail more than usual. Begin here.",
	},
	{
		"list_failures", "failures", "window", readsOnly,
		"Groups the last 1,000 runs that failed by workflow, step, code and message, with a run as an example of " +
			"each group.",
	},
	{
		"list_workflows", "workflows list", "limit cursor", readsOnly,
		"Lists the workflows that have runs, by name, with the number of open runs.",
	},
	{
		"list_runs", "runs list", "workflow status need error-code key attr deployment parent created-after " +
			"created-before ended-after limit cursor", readsOnly,
		"Lists runs, the newest first, with their status, why they are not done, and the errors with which they " +
			"failed.",
	},
	{
		"get_run", "runs show", "id", readsOnly,
		"Shows a run: status, times, attributes, input, output and error, and its steps, hooks and waits.",
	},
	{
		"explain_run", "runs why", "id", readsOnly,
		"Explains why a run is not done: what it waits for or what fails, since when, what comes next, and which " +
			"commands help.",
	},
	{
		"wait_run", "runs wait --timeout=20s", "id timeout", readsOnly,
		"Waits until a run has ended, for 20s unless you say how long, and shows it. Call again if it has not.",
	},
	{
		"list_hooks", "hooks list", "run workflow token-prefix limit cursor", readsOnly,
		"Lists the open hooks, with the tokens that resume them, or all hooks of a run. A hook is where a run " +
			"waits for somebody or something outside.",
	},
	{
		"run_timeline", "runs timeline", "id name status limit cursor", readsOnly,
		"Lists what a run did and when: its steps with their attempts, hooks and waits. A short view of its log.",
	},
	{
		"run_log", "runs events", "id payloads type about after order limit cursor", readsOnly,
		"Lists the events of a run's log, without payloads unless you ask for them. Of a long log, select by " +
			"type, or begin at its end with order desc.",
	},
	{
		"read_payload", "runs payload --length=8000", "id seq offset", readsOnly,
		"Reads the payload of one event, which lists shorten: up to 8000 bytes from an offset.",
	},
	{
		"start_run", "runs start", "workflow input idempotency-key deployment key attr delay timeout", adds,
		"Starts a run of a workflow. Give an idempotency-key, so that a repeated call starts no second run. " +
			"wait_run waits for its end.",
	},
	{
		"resume_hook", "hooks resume", "token run payload resume-id", adds,
		"Resumes a run that waits for a hook, with a payload. Name the hook by its token, or by its run and ID. " +
			"The payload for an approval is a vote: send it only if the person who votes has asked you to.",
	},
	{
		"send_signal", "signals send", "name data id keep-for", adds,
		"Sends a signal to all hooks that wait for its name, in all runs.",
	},
	{
		"send_message", "runs send", "run inbox payload id", adds,
		"Sends a message to an inbox of one run, and continues the run.",
	},
	{
		"cancel_run", "runs cancel", "id reason grace", ends,
		"Cancels a run and its children. It cannot be undone. With a grace, the run may undo its work within that " +
			"time.",
	},
	{
		"rerun_run", "runs rerun", "id deployment idempotency-key", adds,
		"Starts a copy of a run from the start: with its input, so its steps are executed again.",
	},
	{
		"fork_run", "runs fork", "id at deployment idempotency-key", adds,
		"Goes on in a new run from a place in the log of a run: by default from where it failed, so what was " +
			"finished before is not done again.",
	},
}

// addTo adds the tool to a server. Errors of the command become errors of the tool, which the model sees.
func (t tool) addTo(ctx context.Context, server *mcp.Server, grammar *kong.Node, s *Session) {
	values := t.values(grammar)
	described := &mcp.Tool{Name: t.name, Description: t.description, Annotations: t.does, InputSchema: schemaOf(values)}
	mcp.AddTool(server, described, func(
		call context.Context, req *mcp.CallToolRequest, _ map[string]any,
	) (*mcp.CallToolResult, any, error) {
		call, cancel := context.WithCancel(call)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		given := map[string]json.RawMessage{}
		if err := json.Unmarshal(req.Params.Arguments, &given); err != nil && len(req.Params.Arguments) > 0 {
			return nil, nil, fmt.Errorf("read the arguments: %w", err)
		}
		text, err := t.call(call, s, values, given)
		if err != nil {
			text = joinLines(text, err.Error())
		}
		content := []mcp.Content{&mcp.TextContent{Text: strings.ToValidUTF8(text, "�")}}
		return &mcp.CallToolResult{Content: content, IsError: err != nil}, nil, nil
	})
}

// values returns the arguments and flags of the command that agents may give.
func (t tool) values(grammar *kong.Node) (list []*kong.Value) {
	node := grammar
	for _, word := range strings.Fields(t.command) {
		if i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word }); i >= 0 {
			node = node.Children[i]
		}
	}
	all := slices.Clone(node.Positional)
	for _, f := range node.Flags {
		all = append(all, f.Value)
	}
	for _, name := range strings.Fields(t.arguments) {
		i := slices.IndexFunc(all, func(v *kong.Value) bool { return v.Name == name })
		list = append(list, all[i]) // a test lists the tools
	}
	return list
}

// schemaOf returns the schema of a tool's arguments.
func schemaOf(values []*kong.Value) *jsonschema.Schema {
	schema := &jsonschema.Schema{
		Type: "object", Properties: map[string]*jsonschema.Schema{},
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	for _, v := range values {
		schema.Properties[v.Name] = propertyOf(v)
		if v.Required {
			schema.Required = append(schema.Required, v.Name)
		}
	}
	return schema
}

func propertyOf(v *kong.Value) *jsonschema.Schema {
	one := &jsonschema.Schema{Type: "string"}
	if v.Enum != "" {
		for _, word := range v.EnumSlice() {
			one.Enum = append(one.Enum, word)
		}
	}
	property := one
	switch v.Target.Interface().(type) {
	case jsonFlag:
		property = &jsonschema.Schema{}
	case bool:
		property = &jsonschema.Schema{Type: "boolean"}
	case int, int64:
		property = &jsonschema.Schema{Type: "integer"}
	case map[string]string:
		property = &jsonschema.Schema{Type: "object", AdditionalProperties: one}
	case []string:
		if v.Flag != nil {
			property = &jsonschema.Schema{Type: "array", Items: one}
		}
	}
	property.Description = v.Help
	return property
}

// call executes the command. If a list is too long for an answer, it asks for fewer entries, so that the cursor at its
// end goes on right after the last of them.
func (t tool) call(
	ctx context.Context, s *Session, values []*kong.Value, given map[string]json.RawMessage,
) (string, error) {
	isList := slices.ContainsFunc(values, func(v *kong.Value) bool { return v.Name == "limit" })
	limit := defaultEntries
	if n, err := strconv.Atoi(string(given["limit"])); err == nil && n > 0 {
		limit = min(n, maxEntries)
	}
	for {
		if isList {
			given["limit"] = json.RawMessage(strconv.Itoa(limit))
		}
		text, err := t.execute(ctx, s, t.commandLine(values, given))
		if isList && limit > 1 && errors.Is(err, errAnswerFull) {
			limit /= 2
			continue
		}
		switch ExitCode(err) {
		case ExitFailed, ExitCancelled, ExitTimeout: // how a run has ended is what was asked for
			return joinLines(text, err.Error()), nil
		}
		if errors.Is(err, errAnswerFull) {
			return joinLines(text, "(the rest is left out)"), nil
		}
		return text, err
	}
}

// commandLine returns the command with what was given. A value never becomes a flag or the name of a file.
func (t tool) commandLine(values []*kong.Value, given map[string]json.RawMessage) []string {
	args := strings.Fields(t.command)
	var positional []string
	for _, v := range values {
		for _, text := range textsOf(v, given[v.Name]) {
			if v.Flag == nil {
				positional = append(positional, text)
			} else {
				args = append(args, "--"+v.Name+"="+text)
			}
		}
	}
	return append(append(args, "--"), positional...)
}

// textsOf returns what was given for a flag or argument, as command lines have it. The schema has been checked.
func textsOf(v *kong.Value, given json.RawMessage) (texts []string) {
	var text string
	var list []string
	var entries map[string]string
	_, isJSON := v.Target.Interface().(jsonFlag)
	switch {
	case given == nil || string(given) == `""` && !isJSON:
		return nil
	case isJSON:
		return []string{string(given)}
	case json.Unmarshal(given, &text) == nil:
		return []string{text}
	case json.Unmarshal(given, &list) == nil:
		return list
	case json.Unmarshal(given, &entries) == nil:
		for key, value := range entries {
			texts = append(texts, key+"="+value)
		}
		return texts
	default: // a number, or a boolean
		return []string{string(given)}
	}
}

// execute executes a command line, and returns what it prints, and then what it notes.
func (t tool) execute(ctx context.Context, s *Session, args []string) (string, error) {
	var out, notes answer
	own := *s
	own.Stdin, own.Stdout, own.Stderr = strings.NewReader(""), &out, &notes
	own.RelativeTimes, own.json, own.maxText = false, false, maxText
	err := own.execute(ctx, args)
	return joinLines(out.text.String(), notes.text.String()), err
}

// execute executes a command line.
func (s *Session) execute(ctx context.Context, args []string) error {
	grammar, err := newGrammar()
	if err != nil {
		return err
	}
	parsed, err := grammar.Parse(args)
	if err != nil {
		return err
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	return parsed.Run(s)
}

// answer is what a command prints, up to maxAnswer bytes.
type answer struct{ text bytes.Buffer }

var errAnswerFull = errors.New("the answer is too long")

// Write implements [io.Writer].
func (a *answer) Write(p []byte) (int, error) {
	if room := maxAnswer - a.text.Len(); len(p) > room {
		n, _ := a.text.Write(p[:room])
		return n, errAnswerFull
	}
	return a.text.Write(p)
}

// joinLines puts what is not empty on lines of its own.
func joinLines(texts ...string) string {
	texts = slices.DeleteFunc(texts, func(text string) bool { return text == "" })
	for i, text := range texts {
		texts[i] = strings.TrimRight(text, "\n")
	}
	return strings.Join(texts, "\n")
}
