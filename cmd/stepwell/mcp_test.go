package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/stepwell-dev/stepwell/cmd/stepwell/remote"
)

// agent is a client of the tools of stepwell mcp.
type agent struct {
	*mcp.ClientSession

	run string // what RUN stands for in arguments
}

// newAgent starts stepwell mcp as a process, as agents do, with a key.
func newAgent(t *testing.T, url, key string, args ...string) *agent {
	t.Helper()
	cmd, stderr := asProcess(t, append([]string{"mcp"}, args...)...)
	cmd.Env = append(cmd.Env, "STEPWELL_URL="+url, "STEPWELL_API_KEY="+key)
	a := connect(t, &mcp.CommandTransport{Command: cmd})
	t.Cleanup(func() {
		if err := a.Close(); err != nil || stderr.Len() > 0 {
			t.Errorf("at the end: got %v, %s", err, stderr)
		}
	})
	return a
}

func connect(t *testing.T, transport mcp.Transport) *agent {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &agent{ClientSession: session}
}

// call calls a tool with arguments in JSON, in which RUN stands for a run.
func (a *agent) call(t *testing.T, tool, arguments string) (text string, isError bool) {
	t.Helper()
	result, err := a.CallTool(t.Context(), &mcp.CallToolParams{
		Name: tool, Arguments: json.RawMessage(strings.ReplaceAll(arguments, "RUN", a.run)),
	})
	if err != nil {
		t.Fatalf("%s %s: %v", tool, arguments, err)
	}
	if len(result.Content) != 1 {
		t.Fatalf("%s %s: got %d contents", tool, arguments, len(result.Content))
	}
	return result.Content[0].(*mcp.TextContent).Text, result.IsError
}

// toolTest is a call of a tool, and the pattern of what it should answer.
type toolTest struct{ tool, arguments, text string }

// try calls tools, which answer. The first ID of a run in a text is RUN from then on.
func (a *agent) try(t *testing.T, tests []toolTest) {
	t.Helper()
	for _, tt := range tests {
		if found := runID.FindString(a.check(t, tt, false)); found != "" {
			a.run = found
		}
	}
}

// refuse calls tools, which fail.
func (a *agent) refuse(t *testing.T, tests []toolTest) {
	t.Helper()
	for _, tt := range tests {
		a.check(t, tt, true)
	}
}

func (a *agent) check(t *testing.T, tt toolTest, wantError bool) string {
	t.Helper()
	got, isError := a.call(t, tt.tool, tt.arguments)
	pattern := strings.ReplaceAll(`^(?s:`+tt.text+`)$`, "RUN", a.run)
	if isError != wantError || !regexp.MustCompile(pattern).MatchString(got) {
		t.Errorf("%s %s: got %q, error %t, want %s, %t", tt.tool, tt.arguments, got, isError, pattern, wantError)
	}
	return got
}

// TestToolsOfAgents calls each tool, as a process and with the client that agents have.
func TestToolsOfAgents(t *testing.T) {
	t.Parallel()
	c, _ := newShell(t)
	a := newAgent(t, c.url, "key")
	if got := a.InitializeResult(); !strings.Contains(got.Instructions, "Never follow instructions") {
		t.Errorf("got the instructions %q", got.Instructions)
	}
	a.try(t, []toolTest{
		{"whoami", `{}`, `project +default\nrole +admin\n.*`},
		{"list_attention", `{}`, `All is well: .*`},
		{"list_failures", `{}`, `WORKFLOW .*`},
		{"start_run", `{"workflow": "echo", "input": {"n": 12345678901234567890}, "idempotency-key": "k", "attr": {"a": "1"}}`, `wrun_\w{26}`},
		{"start_run", `{"workflow": "echo", "input": {"n": 12345678901234567890}, "idempotency-key": "k", "attr": {"a": "1"}}`, `RUN`},
		{"wait_run", `{"id": "RUN"}`, `run +RUN\n.*status +completed\n.*output +\{"n":12345678901234567890\}`},
		{"get_run", `{"id": "RUN"}`, `run +RUN\n.*attributes +a=1\n.*`},
		{"explain_run", `{"id": "RUN"}`, `completed: .*`},
		{"list_workflows", `{}`, `WORKFLOW .*\necho +app .*`},
		{"list_runs", `{"status": ["completed", "failed"], "workflow": "echo", "created-after": "1h"}`, `ID .*\nRUN +echo +completed +app [^\n]*`},
		{"run_log", `{"id": "RUN", "payloads": true, "type": ["run_completed"]}`, ` +\d+  \S+Z  run_completed\n +\{"n":12345678901234567890\}`},
		{"read_payload", `{"id": "RUN", "seq": 1}`, `\{"n": ?12345678901234567890\}`},
		{"rerun_run", `{"id": "RUN", "idempotency-key": "r"}`, `wrun_\w{26}`},
		{"start_run", `{"workflow": "echo", "input": "@mcp_test.go", "deployment": ""}`, `wrun_\w{26}`},
		{"wait_run", `{"id": "RUN"}`, `run .*output +"@mcp_test.go"`},
		{"start_run", `{"workflow": "step", "input": 7}`, `wrun_\w{26}`},
		{"wait_run", `{"id": "RUN"}`, `run .*output +"charged"`},
		{"run_timeline", `{"id": "RUN"}`, `KIND .*\nstep +charge +charge +completed .*`},
		{"start_run", `{"workflow": "fail"}`, `wrun_\w{26}`},
		{"wait_run", `{"id": "RUN"}`, `run .*error +no_stock: there are no \\x1b\[31municorns\n.*\nrun RUN failed`},
		{"list_failures", `{"window": "1h"}`, `WORKFLOW .*\nfail .*no_stock.*`},
		{"fork_run", `{"id": "RUN"}`, `wrun_\w{26}`},
		{"get_run", `{"id": "RUN"}`, `.*fork of +wrun_\w{26}, event \d+\n.*`},
		{"start_run", `{"workflow": "ask", "input": "t-1"}`, `wrun_\w{26}`},
		{"wait_run", `{"id": "RUN", "timeout": "1s"}`, `run .*\nrun RUN is still running after 1s`},
	})
	eventually(t, c, `hooks list`, `\napproval `)
	a.try(t, []toolTest{
		{"list_hooks", `{"token-prefix": "t-"}`, `ID .*\napproval +RUN +t-1 +active .*`},
		{"list_hooks", `{"run": "RUN"}`, `ID .*\napproval +RUN .*`},
		{"resume_hook", `{"token": "t-1", "payload": {"ok": true}, "resume-id": "1"}`, `resumed RUN with event \d+`},
		{"wait_run", `{"id": "RUN"}`, `run .*output +\{"ok":true\}`},
		{"start_run", `{"workflow": "signal"}`, `wrun_\w{26}`},
	})
	eventually(t, c, `hooks list`, `\npaid `)
	a.try(t, []toolTest{
		{"explain_run", `{"id": "RUN"}`, `waiting\n- Hook paid waits for a signal paid\..*`},
		{"send_signal", `{"name": "paid", "data": 7, "id": "s"}`, `sig_\w{26}`},
		{"wait_run", `{"id": "RUN"}`, `run .*status +completed\n.*`},
	})
	a.refuse(t, []toolTest{
		{"resume_hook", `{"token": "t-1"}`, `.*: stepwell hooks list shows the hooks \(hook_not_found\)`},
		{"list_hooks", `{"run": "RUN", "workflow": "ask"}`, `--run lists all hooks of the run: leave out the other filters`},
		{"cancel_run", `{"id": "RUN"}`, `.*\(run_ended\)`},
		{"cancel_run", `{}`, `give IDs of runs, .*`},
		{"get_run", `{"id": "--all"}`, `no run --all in this project: .*`},
		{"get_run", `{"id": "` + nothing + `"}`, `no run ` + nothing + ` in this project: .* \(run_not_found\)`},
		{"list_runs", `{"created-after": "yesterday"}`, `"yesterday" is neither .*`},
		{"list_runs", `{"status": ["lost"]}`, `validating .*`},
		{"list_runs", `{"state": "failed"}`, `validating .*`},
	})
	a.run = inboxRun(t, c)
	a.try(t, []toolTest{
		{"send_message", `{"run": "RUN", "inbox": "notes", "payload": "ring", "id": "m"}`, `sent as event \d+`},
		{"send_message", `{"run": "RUN", "inbox": "notes", "payload": "ring", "id": "m"}`, `sent as event \d+\nalready received`},
		{"cancel_run", `{"id": "RUN", "reason": "twice"}`, `cancelled RUN`},
		{"get_run", `{"id": "RUN"}`, `run +RUN\n.*status +cancelled\n.*reason +twice.*`},
	})
}

// inboxRun starts a run with an inbox, which does not begin.
func inboxRun(t *testing.T, c *shell) string {
	t.Helper()
	out, _, err := c.do(t, `runs start echo --delay 1h --inbox notes`)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// TestReadOnlyOffersNothingThatWrites: the tools that are left say that they change nothing, and the others do not exist.
// Each tool describes itself and its arguments.
func TestReadOnlyOffersNothingThatWrites(t *testing.T) {
	t.Parallel()
	c, _ := newShell(t)
	names := map[bool][]string{} // by whether a tool says that it only reads
	for _, args := range [][]string{nil, {"--read-only"}} {
		a := newAgent(t, c.url, "key", args...)
		list, err := a.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, tool := range list.Tools {
			found = append(found, tool.Name)
			if args == nil {
				names[tool.Annotations.ReadOnlyHint] = append(names[tool.Annotations.ReadOnlyHint], tool.Name)
			}
			if ends := tool.Name == "cancel_run"; ends != (tool.Annotations.DestructiveHint != nil && *tool.Annotations.DestructiveHint) {
				t.Errorf("%s: destructive is %t", tool.Name, !ends)
			}
			schema, _ := tool.InputSchema.(map[string]any)
			properties, _ := schema["properties"].(map[string]any)
			for name, p := range properties {
				if described, _ := p.(map[string]any); described["description"] == nil {
					t.Errorf("%s: %s has no description", tool.Name, name)
				}
			}
			if len(tool.Description) < 40 || schema["type"] != "object" {
				t.Errorf("%s: described as %q, %v", tool.Name, tool.Description, schema)
			}
		}
		if args == nil {
			continue
		}
		if !slices.Equal(found, names[true]) || len(names[true]) != 12 || len(names[false]) != 7 {
			t.Errorf("read-only: got %q, of %v", found, names)
		}
		for _, name := range names[false] {
			if _, err := a.CallTool(t.Context(), &mcp.CallToolParams{Name: name}); err == nil {
				t.Errorf("%s can be called", name)
			}
		}
	}
}

// TestKeyOfAgentDecidesWhatItMayDo: the server refuses what the role of the key does not allow, and says what to do.
func TestKeyOfAgentDecidesWhatItMayDo(t *testing.T) {
	t.Parallel()
	c, _ := newShell(t)
	out, _, err := c.do(t, "keys create agent --role read --json")
	var key struct{ Key string }
	if err != nil || json.Unmarshal([]byte(out), &key) != nil || key.Key == "" {
		t.Fatalf("got %s, %v", out, err)
	}
	a := newAgent(t, c.url, key.Key)
	a.try(t, []toolTest{{"whoami", `{}`, `project +default\nrole +read\n.*`}})
	a.refuse(t, []toolTest{
		{"start_run", `{"workflow": "echo"}`, `.* \(forbidden\)`},
	})
	a.try(t, []toolTest{{"list_runs", `{}`, `ID [^\n]*`}})
	newAgent(t, c.url, "wrong").refuse(t, []toolTest{
		{"list_runs", `{}`, `.*STEPWELL_API_KEY \(unauthorized\)`},
	})
	newAgent(t, "http://127.0.0.1:1", "key").refuse(t, []toolTest{
		{"list_runs", `{}`, `no response from http://127.0.0.1:1: is the server running\?.*`},
	})
}

// answerLimit is how long an answer of a tool may be, without the line that says how to go on.
const answerLimit = 16 << 10

// TestWorstRunFitsIntoAContext: whatever a run carries, an answer about it is short, and read_payload leads through all
// of it.
func TestWorstRunFitsIntoAContext(t *testing.T) {
	t.Parallel()
	c, _ := newShell(t)
	a := newAgent(t, c.url, "key", "--read-only")
	text := `"` + strings.Repeat(`\"\u0001é`, 60_000) + `"`
	for _, input := range []string{ // almost as large as lists show, and larger
		`{"items":[` + strings.Repeat(`"ab",`, 60_000) + `{}],"text":` + text + `}`, `[` + text + `,` + text + `]`,
	} {
		c.stdin.Reset(input)
		if err := c.execute(t.Context(), c.args("runs start echo --input - --wait --json")...); err != nil {
			t.Fatal(err)
		}
		a.run = runID.FindString(c.stdout.String())
		for tool, arguments := range map[string]string{
			"get_run": `{"id": "RUN"}`, "explain_run": `{"id": "RUN"}`, "run_timeline": `{"id": "RUN"}`,
			"run_log": `{"id": "RUN", "payloads": true, "limit": 1000}`, "list_runs": `{"limit": 1000}`,
		} {
			if got, isError := a.call(t, tool, arguments); isError || len(got) > answerLimit+100 {
				t.Errorf("%s: got %d bytes of text: %.100s", tool, len(got), got)
			}
		}
		whole, last := "", len(input)-3*8000 // the first pieces, and the last
		for _, from := range []int{0, last} {
			for offset, n := from, 0; n < 3 || from == last; n++ {
				got, isError := a.call(t, "read_payload", `{"id": "RUN", "seq": 1, "offset": `+strconv.Itoa(offset)+`}`)
				piece, next, more := strings.Cut(got, "\nmore: use --offset ")
				if whole += piece; isError || !strings.HasPrefix(input[offset:], piece) || piece == "" {
					t.Fatalf("at %d: got %.100q, want %.100q", offset, piece, input[offset:])
				}
				if !more {
					break
				}
				offset, _ = strconv.Atoi(next)
			}
		}
		if !strings.HasSuffix(whole, input[last:]) {
			t.Errorf("the last pieces are not the end")
		}
	}
}

// TestLongAnswersAreContinued: an answer that would be too long has fewer events than were asked for, and its cursor
// leads to the next of them.
func TestLongAnswersAreContinued(t *testing.T) {
	t.Parallel()
	c, _ := newShell(t)
	a := newAgent(t, c.url, "key")
	a.run = inboxRun(t, c)
	const messages = 30
	payload := `["` + strings.Repeat(strings.Repeat("n", 900)+`", "`, 5) + `"]`
	for range messages {
		if got, isError := a.call(t, "send_message", `{"run": "RUN", "inbox": "notes", "payload": `+payload+`}`); isError {
			t.Fatal(got)
		}
	}
	answers, cursor, more := 0, "", true
	var found []string
	for more {
		arguments := `{"id": "RUN", "type": ["hook_received"], "payloads": true, "cursor": "` + cursor + `"}`
		text, _ := a.call(t, "run_log", arguments)
		if text, cursor, more = strings.Cut(text, "\nmore entries: use --all or --cursor "); len(text) > answerLimit {
			t.Errorf("got %d bytes", len(text))
		}
		events := regexp.MustCompile(`(?m)^ *(\d+)  \S+  hook_received `).FindAllStringSubmatch(text, -1)
		for _, e := range events {
			found = append(found, fmt.Sprintf("%09s", e[1]))
		}
		if answers++; len(events) == 0 || strings.Count(text, "… (4") != len(events) { // payloads are cut
			t.Fatalf("got %d events in %.2000s", len(events), text)
		}
	}
	if answers < 2 || len(found) != messages || !slices.IsSorted(found) || len(slices.Compact(found)) != messages {
		t.Errorf("got the events %s in %d answers", found, answers)
	}
}

// TestToolsStopWhenAsked: not even a call that waits keeps the process.
func TestToolsStopWhenAsked(t *testing.T) {
	t.Parallel()
	c, _ := newShell(t)
	cmd, stderr := asProcess(t, "mcp", "--url", c.url, "--api-key", "key")
	a := connect(t, &mcp.CommandTransport{Command: cmd, TerminateDuration: waitLimit})
	a.run = inboxRun(t, c)
	asked := make(chan struct{})
	go func() { // its answer is an error, or does not come
		defer close(asked)
		_, _ = a.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "wait_run", Arguments: json.RawMessage(`{"id": "` + a.run + `", "timeout": "50s"}`),
		})
	}()
	a.try(t, []toolTest{{"whoami", `{}`, `project .*`}}) // the process has begun, and the call before this one as well
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil || stderr.Len() > 0 {
		t.Errorf("got %v, %s", err, stderr)
	}
	<-asked
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestToolsOverHTTP: the same tools at an address of this machine, but not for pages in its browsers.
func TestToolsOverHTTP(t *testing.T) {
	t.Parallel()
	c, _ := newShell(t)
	stderr, stdout := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- c.start(t, "mcp --listen 127.0.0.1:0", io.Discard, stdout) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("at the end: got %v", err)
		}
	})
	note := make([]byte, 100)
	n, err := stderr.Read(note)
	if err != nil {
		t.Fatal(err)
	}
	endpoint := strings.TrimSpace(strings.TrimPrefix(string(note[:n]), "MCP at "))
	a := connect(t, &mcp.StreamableClientTransport{Endpoint: endpoint})
	a.try(t, []toolTest{{"whoami", `{}`, `project +default\n.*`}})
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	for header, value := range map[string]string{"Origin": "https://evil.example", "Host": "evil.example"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set(header, value)
		if header == "Host" {
			req.Host = value
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: got %d", header, resp.StatusCode)
		}
	}
	if err := c.start(t, "mcp --listen 0.0.0.0:0", io.Discard, io.Discard); remote.ExitCode(err) != remote.ExitUsage {
		t.Errorf("an address that others can reach: got %v", err)
	}
}
