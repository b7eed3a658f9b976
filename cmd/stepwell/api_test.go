package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/cmd/stepwell/remote"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/server"
	"github.com/stepwell-dev/stepwell/server/servertest"
)

// functionCall is the part of a function call that the test function reads.
type functionCall struct {
	Type string
	Run  struct {
		Workflow string
		Input    json.RawMessage
	}
	Events []struct {
		Type    string
		Payload json.RawMessage
	}
}

// payload returns the payload of the first event of a type, or nil.
func (c functionCall) payload(kind string) json.RawMessage {
	for _, e := range c.Events {
		if e.Type == kind {
			return e.Payload
		}
	}
	return nil
}

// commands returns the next commands of the workflow.
func (c functionCall) commands() []map[string]any {
	complete := func(output any) []map[string]any { return []map[string]any{{"type": "complete", "output": output}} }
	switch c.Run.Workflow {
	case "echo":
		return complete(c.Run.Input)
	case "fail":
		return []map[string]any{{"type": "fail", "error": map[string]any{
			"code": "no_stock", "message": "there are no \x1b[31municorns", "details": map[string]any{"left": 0},
		}}}
	case "step":
		if result := c.payload("step_completed"); result != nil {
			return complete(result)
		}
		return []map[string]any{{"type": "runStep", "id": "charge", "input": c.Run.Input}}
	case "ask":
		if received := c.payload("hook_received"); received != nil {
			return complete(received)
		}
		return []map[string]any{{"type": "openHook", "id": "approval", "token": json.RawMessage(c.Run.Input)}}
	default: // signal
		if received := c.payload("hook_received"); received != nil {
			return complete(received)
		}
		return []map[string]any{{"type": "openHook", "id": "paid", "signal": map[string]any{"name": "paid"}}}
	}
}

// newFunction starts an endpoint with the workflows of functionCall.commands.
func newFunction(t *testing.T) string {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c functionCall
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			t.Error(err)
		}
		var answer any = map[string]any{"commands": c.commands()}
		if c.Type == "step" {
			answer = "charged"
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(web.Close)
	return web.URL
}

// shell runs API commands against a server.
type shell struct {
	*commandLine

	stdin *strings.Reader
	url   string
	run   string // the run ID that was printed last
}

var runID = regexp.MustCompile(`wrun_[0-9A-HJKMNP-TV-Z]{26}`)

// do runs a command line, in which RUN stands for the run ID that was printed last.
func (c *shell) do(t *testing.T, line string) (out, notes string, err error) {
	t.Helper()
	c.stdin.Reset(`{"from": "stdin"}`)
	err = c.execute(t.Context(), c.args(line)...)
	return c.stdout.String(), c.stderr.String(), err
}

func (c *shell) args(line string) []string {
	words := strings.Fields(strings.ReplaceAll(line, "RUN", c.run))
	if c.url == "" {
		return words
	}
	return append(words, "--url", c.url, "--api-key", "key")
}

// start runs a command line beside others.
func (c *shell) start(t *testing.T, line string, stdout, stderr io.Writer) error {
	t.Helper()
	return execute(t.Context(), c.args(line), remote.Console{
		Stdin: strings.NewReader(""), Stdout: stdout, Stderr: stderr, Now: time.Now,
	})
}

// newShell starts a server with a deployment named app.
func newShell(t *testing.T) (*shell, *program) {
	t.Helper()
	s := newServer(t, testdb.Indexed(t), server.RoleAll)
	s.config.APIKey, s.config.Open = "key", false
	mustStart(t, s)
	c := &shell{stdin: strings.NewReader(""), url: "http://" + s.Addr()}
	c.commandLine = newCommandLine(t, remote.Console{Stdin: c.stdin, Now: time.Now})
	if _, _, err := c.do(t, "deployments add app "+newFunction(t)); err != nil {
		t.Fatal(err)
	}
	return c, s
}

// commandTest is a command and what it should print.
type commandTest struct {
	line  string
	out   string // a pattern for all of standard output
	code  int
	notes string // a part of standard error or of the error
}

func (c *shell) try(t *testing.T, tests []commandTest) {
	t.Helper()
	for _, tt := range tests {
		out, notes, err := c.do(t, tt.line)
		if err != nil {
			notes += err.Error()
		}
		if code := remote.ExitCode(err); code != tt.code || !strings.Contains(notes, tt.notes) {
			t.Errorf("%s: got %d, %q; want %d, %q", tt.line, code, notes, tt.code, tt.notes)
		}
		if !regexp.MustCompile(`^(?s:` + tt.out + `)$`).MatchString(out) {
			t.Errorf("%s: got %q, want %s", tt.line, out, tt.out)
		}
		if found := runID.FindString(out + notes); found != "" {
			c.run = found
		}
	}
}

const (
	oneID   = `wrun_\w{26}\n`
	nothing = "wrun_01JD5A8R8D0000000000000000"
)

func TestRunCommands(t *testing.T) {
	t.Parallel()
	c, _ := newShell(t)
	c.try(t, []commandTest{
		{`runs start echo --input {"a":1}`, oneID, 0, ""},
		{`runs wait RUN`, `run +wrun_\w+\nworkflow +echo\nstatus +completed\n.*input +\{"a":1\}\noutput +\{"a":1\}\n`, 0, ""},
		{`runs start echo --input - --wait`, `run .*output +\{"from":"stdin"\}\n`, 0, "wrun_"},
		{`runs start fail --wait`, `run .*status +failed.*error +no_stock: there are no \\x1b\[31municorns\ndetails +\{"left":0\}\n`, remote.ExitFailed, "failed"},
		{`runs list --status failed`, `ID .*\n` + oneID[:len(oneID)-2] + ` +fail +failed +app .*no_stock\n`, 0, ""},
		{`runs start step -d app -i 7 --wait --attr customer=7`, `run .*attributes +customer=7\n.*output +"charged"\n`, 0, ""},
		{`runs list --attr customer=7`, `ID[^\n]*\n[^\n]* step +completed [^\n]* customer=7\n`, 0, ""},
		{`runs show RUN`, `run .*\n\nSTEPS +NAME.*\ncharge +charge +completed +1 .*`, 0, ""},
		{`steps list RUN`, `ID .*\ncharge +charge +completed +1 .*`, 0, ""},
		{`steps show RUN charge`, `id +charge\n.*input +7\noutput +"charged"\n`, 0, ""},
		{`steps show RUN refund`, ``, remote.ExitNotFound, "stepwell steps list RUN"},
		{`runs events RUN --type step_completed --payloads`, ` +\d+  \S+Z  step_completed  charge  stepName=charge\n {8}"charged"\n`, 0, ""},
		{`runs payload RUN 1`, `7`, 0, ""},
		{`runs export RUN`, `\{"run":\{"id":"wrun_.*"payload":"charged".*\}\n`, 0, ""},
		{`runs rerun RUN --wait --json`, `\{"id":"wrun_[^\n]*"output":"charged"[^\n]*\}\n`, 0, ""},
		{`runs cancel RUN`, ``, remote.ExitConflict, "(run_ended)"},
		{`runs attributes RUN a=b`, ``, remote.ExitConflict, "(run_ended)"},
		{`runs start ask --input "t-1" --key k --attr a=1`, oneID, 0, ""},
		{`runs start ask --input "t-1" --key k`, ``, remote.ExitConflict, "(key_taken)"},
		{`runs start ask --input "t-1" --key k --on-conflict join`, oneID, 0, ""},
		{`runs attributes RUN b=2 --remove a`, `b  2\n`, 0, ""},
		{`runs wait RUN --timeout 50ms`, `run .*status +(pending|running)\n.*`, remote.ExitTimeout, "after 50ms"},
		{`runs cancel RUN --grace 1h --reason twice`, `asked wrun_\w+ to cancel; it is ended at \S+Z\n`, 0, ""},
		{`runs show RUN`, `run .*status +running\n.*forced at +\S+Z\n.*`, 0, ""},
		{`runs cancel RUN --reason twice`, `cancelled ` + oneID[:len(oneID)-2] + `\n`, 0, ""},
		{`runs why RUN`, `cancelled: \S+Z\n  twice\n`, 0, ""},
		{`why RUN --json`, `\{"runId":"wrun_\w+","verdict":"ended",[^\n]*\}\n`, 0, ""},
		{`runs wait RUN`, `run .*status +cancelled\n.*reason +twice\n.*`, remote.ExitCancelled, "was cancelled"},
		{`runs start ask --input "t-2" --timeout 1h --timeout-grace 1m`, oneID, 0, ""},
		{`runs start ask --input "t-3"`, oneID, 0, ""},
		{`runs cancel --workflow ask --dry-run`, oneID + oneID + `would cancel 2\n`, 0, ""},
		{`runs cancel --workflow ask --limit 1`, oneID + `cancelled 1\n`, 0, "more runs match"},
		{`runs cancel --workflow ask`, oneID + `cancelled 1\n`, 0, ""},
		{`runs cancel ` + nothing, ``, remote.ExitNotFound, "no run " + nothing + " in this project: stepwell runs list shows the runs (run_not_found)"},
		{`runs list --all --json`, `(\{"id":"wrun_[^\n]*\}\n){8}`, 0, ""},
		{`runs list --limit 1`, `ID[^\n]*\nwrun_[^\n]*\n`, 0, "more entries: use --all or --cursor "},
		{`runs children ` + nothing, ``, remote.ExitNotFound, "run_not_found"},
	})
	// The feed waits for transactions of other databases of the cluster too.
	eventually(t, c, `events list --type run_failed`, `^wrun_\w{26} +\d+  \S+Z  run_failed +errorCode=no_stock[^\n]*\n$`)
}

func TestHookSignalAndStreamCommands(t *testing.T) {
	t.Parallel()
	c, s := newShell(t)
	c.try(t, []commandTest{{`runs start signal`, oneID, 0, ""}})
	eventually(t, c, `hooks list`, `\npaid `)
	c.try(t, []commandTest{
		{
			`why RUN`, `waiting\n- Hook paid waits for a signal paid\. \(since \S+Z\)\n  stepwell signals send paid --data JSON\n` +
				`  stepwell hooks resume paid --run wrun_\w+ --payload JSON\n`, 0, "",
		},
		{`hooks list --run RUN --json`, `\{"id":"paid",[^\n]*\}\n`, 0, ""},
		{`hooks show RUN paid`, `id +paid\n.*signal +paid\n.*`, 0, ""},
		{`signals send paid --data {"amount":7} --id s-1 --keep-for 1h`, `sig_\w{26}\n`, 0, ""},
		{`signals send paid --data {"amount":8} --id s-1`, ``, remote.ExitConflict, "(idempotency_mismatch)"},
		{`signals list --name paid`, `ID [^\n]*\nsig_[^\n]* +paid +s-1 .*\{"amount":7\}\n`, 0, ""},
		{`runs wait RUN`, `run .*status +completed\n.*`, 0, ""},
		{`waits list RUN`, `ID[^\n]*\n`, 0, ""},
		{`hooks resume missing`, ``, remote.ExitNotFound, "stepwell hooks list"},
		{`streams list RUN`, `NAME[^\n]*\n`, 0, ""},
		{`streams tail RUN log`, ``, remote.ExitNotFound, "stepwell streams list RUN"},
		{`deployments show app`, `id +app\n.*`, 0, ""},
		{`deployments add a,;?#%2F:b http://x.test`, `registered a,;\?#%2F:b at http://x.test\n`, 0, ""},
		{`deployments list`, `ID .*\na,;\?#%2F:b +http://x\.test +0 +2\S+Z\napp .*`, 0, ""},
		{`deployments remove a,;?#%2F:b none`, ``, remote.ExitNotFound, "remove deployment none: deployment not found"},
		{`messages discard msg_1 msg_2`, ``, remote.ExitNotFound, "msg_2: message not found"},
		{`runs count --workflow none`, `0\n`, 0, ""},
		{`secrets list`, `NAME +CREATED +UPDATED +SENT TO\n`, 0, ""},
		{`secrets set stripe`, `set secret stripe\n`, 0, ""},
		{`secrets list`, `NAME +CREATED +UPDATED +SENT TO\nstripe .*\n`, 0, ""},
		{`secrets remove stripe`, ``, 0, ""},
		{`secrets remove stripe`, ``, remote.ExitNotFound, "stepwell secrets list"},
		{`messages show msg_x`, ``, remote.ExitNotFound, "stepwell messages list --state all"},
	})
	streams := read.NewStreams(s.Pool(), pg.NewLocalHub(), time.Now)
	write := func(chunks ...string) {
		list := make([][]byte, len(chunks))
		for i, text := range chunks {
			list[i] = []byte(text)
		}
		if err := streams.Write(t.Context(), entities.DefaultProject, entities.RunID(c.run), "log", list); err != nil {
			t.Error(err)
		}
	}
	write("once ", "\xff\x00", "upon ")
	c.try(t, []commandTest{
		{`streams list RUN`, `NAME +CHUNKS .*\nlog +3 .*\n`, 0, ""},
		{`streams tail RUN log`, `once ..upon `, 0, ""},
		{`streams tail RUN log --from=-1`, "upon ", 0, ""},
		{`streams tail RUN log --from 1 --json`, `\{"index":1,"base64":"/wA="\}\n\{"index":2,"text":"upon "\}\n`, 0, ""},
	})
	var printed bytes.Buffer
	out := newSignalWriter(&printed, "upon ")
	followed := make(chan error, 1)
	go func() { followed <- c.start(t, "streams tail RUN log --follow", out, io.Discard) }()
	<-out.seen
	write("a time")
	if err := streams.Close(t.Context(), entities.DefaultProject, entities.RunID(c.run), "log"); err != nil {
		t.Fatal(err)
	}
	if err := <-followed; err != nil || printed.String() != "once \xff\x00upon a time" {
		t.Errorf("followed: got %q, %v", &printed, err)
	}
}

// eventually repeats a command until its output matches a pattern.
func eventually(t *testing.T, c *shell, line, pattern string) {
	t.Helper()
	want := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(waitLimit); ; {
		out, _, err := c.do(t, line)
		switch {
		case err == nil && want.MatchString(out):
			return
		case time.Now().After(deadline):
			t.Fatalf("%s: got %q, %v; want %s", line, out, err, pattern)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestFollowRunEvents: events are printed as they are written, until the run ends.
func TestFollowRunEvents(t *testing.T) {
	t.Parallel()
	c, _ := newShell(t)
	c.try(t, []commandTest{{`runs start ask --input "t"`, oneID, 0, ""}})
	var printed bytes.Buffer
	out := newSignalWriter(&printed, "hook_created")
	followed := make(chan error, 1)
	go func() { followed <- c.start(t, "runs events RUN --follow --payloads", out, io.Discard) }()
	<-out.seen
	if _, _, err := c.do(t, `hooks resume t --payload {"approved":true} --resume-id 1`); err != nil {
		t.Fatal(err)
	}
	if err := <-followed; err != nil || !strings.HasSuffix(printed.String(), "run_completed\n        {\"approved\":true}\n") {
		t.Errorf("got %q, %v; want all events", &printed, err)
	}
	repeated, _, err := c.do(t, `hooks resume t --payload {"approved":true} --resume-id 1`)
	if remote.ExitCode(err) != remote.ExitNotFound {
		t.Errorf("after the end: got %q, %v", repeated, err)
	}
}

// TestJSONOutputIsTheResponse: --json prints the response byte for byte, or each entry of a list.
func TestJSONOutputIsTheResponse(t *testing.T) {
	t.Parallel()
	c, s := newShell(t)
	c.try(t, []commandTest{
		{`runs start step --input {"z":1,"a":12345678901234567890,"t":"<\u00e9>"} --wait`, `.*`, 0, ""},
		{`runs start echo --wait`, `.*`, 0, ""},
	})
	for line, path := range map[string]string{
		`runs show RUN`: "/v1/runs/RUN", `deployments show app`: "/v1/deployments/app",
		`runs list`: "/v1/runs", `runs events RUN --payloads`: "/v1/runs/RUN/events", `deployments list`: "/v1/deployments",
	} {
		got, _, err := c.do(t, line+" --json")
		if err != nil {
			t.Error(err)
		}
		body, err := io.ReadAll(servertest.Request(t, http.MethodGet, "http://"+s.Addr()+strings.ReplaceAll(path, "RUN", c.run), "",
			"Authorization", "Bearer key").Body)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.TrimSpace(string(body)) + "\n"
		var page struct{ Data []json.RawMessage }
		if err := json.Unmarshal(body, &page); err != nil {
			t.Fatal(err)
		}
		if page.Data != nil {
			want = ""
			for _, entry := range page.Data {
				want += string(entry) + "\n"
			}
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", line, got, want)
		}
	}
}

// TestExitCodesOfFailedCommands: usage errors, an unreachable server, a missing key.
func TestExitCodesOfFailedCommands(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t), server.RoleAPI)
	s.config.APIKey, s.config.Open = "key", false
	mustStart(t, s)
	for _, tt := range []struct {
		line string
		code int
		want string
	}{
		{"runs", remote.ExitUsage, "see stepwell runs --help"},
		{"runs lst", remote.ExitUsage, `did you mean "list"?`},
		{"runs list --statuss failed", remote.ExitUsage, "unknown flag --statuss"},
		{"runs list --status lost", remote.ExitUsage, "--status must be one of"},
		{"runs list --limit=-1", remote.ExitUsage, "--limit is -1"},
		{"runs list --limit many", remote.ExitUsage, "--limit"},
		{"runs list --created-after yesterday", remote.ExitUsage, "nor an age such as 2h"},
		{"runs start", remote.ExitUsage, "want the name of a workflow, or --catalog"},
		{"runs start w --input teapot", remote.ExitUsage, "--input is not JSON"},
		{"runs cancel", remote.ExitUsage, "give IDs of runs"},
		{"runs cancel wrun_1 --workflow w", remote.ExitUsage, "either IDs"},
		{"runs cancel --workflow w --grace 1m", remote.ExitUsage, "--grace needs IDs"},
		{"runs cancel wrun_1 --dry-run", remote.ExitUsage, "either IDs"},
		{"runs events wrun_1 --follow --limit 1", remote.ExitUsage, "--follow"},
		{"events list --after 0", remote.ExitUsage, "--after requires --follow"},
		{"secrets set stripe", remote.ExitUsage, "echo VALUE | stepwell secrets set stripe"},
		{"keys create ci --role boss", remote.ExitUsage, "--role must be one of"},
		{"serve --url http://x", remote.ExitUsage, "stepwell serve takes no --url"},
		{"--json migrate", remote.ExitUsage, "stepwell migrate takes no --json"},
		{"runs list --url 127.0.0.1", remote.ExitUsage, "want one such as"},
		{"runs list --url http://127.0.0.1:1", remote.ExitUnreachable, "no response from http://127.0.0.1:1: is the server running?"},
		{"runs wait wrun_1 --url http://127.0.0.1:1", remote.ExitUnreachable, "no response"},
		{"runs list --url http://" + s.Addr(), remote.ExitDenied, "STEPWELL_API_KEY"},
		{"runs events wrun_1 --follow --url http://" + s.Addr(), remote.ExitDenied, "STEPWELL_API_KEY"},
		{"deployments show x --api-key key --url http://" + s.Addr(), remote.ExitNotFound, "stepwell deployments list"},
		{"deployments add x y --api-key key --url http://" + s.Addr(), remote.ExitUsage, "(invalid_request)"},
	} {
		err := run(t.Context(), strings.Fields(tt.line), io.Discard, io.Discard)
		if code := remote.ExitCode(err); code != tt.code || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %d, %v; want %d, %s", tt.line, code, err, tt.code, tt.want)
		}
	}
}

// asProcess returns the command as a process, and its standard error.
func asProcess(t *testing.T, args ...string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "STEPWELL_LOG=xml") // invalid, but a server setting that API commands ignore
	stderr = new(bytes.Buffer)
	cmd.Stderr = stderr
	return cmd, stderr
}

// TestInterruptedCommandsExitQuietly: waiting and following commands exit with their own code and print no error.
func TestInterruptedCommandsExitQuietly(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"runs wait wrun_1", "runs events wrun_1 --follow", "events list --follow", "streams tail wrun_1 log --follow", "runs start w --wait",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			requested := make(chan struct{})
			once := sync.OnceFunc(func() { close(requested) })
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					_, _ = io.WriteString(w, `{"id":"wrun_1"}`)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				w.(http.Flusher).Flush()
				once()
				<-r.Context().Done()
			}))
			t.Cleanup(web.Close)
			cmd, stderr := asProcess(t, append(strings.Fields(line), "--url", web.URL)...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			kill := time.AfterFunc(waitLimit, func() { _ = cmd.Process.Kill() })
			defer kill.Stop()
			<-requested
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
			err := cmd.Wait()
			exit := (*exec.ExitError)(nil)
			if !errors.As(err, &exit) || exit.ExitCode() != remote.ExitInterrupted {
				t.Errorf("got %v, want exit code %d", err, remote.ExitInterrupted)
			}
			if text := strings.TrimPrefix(stderr.String(), "wrun_1\n"); text != "" {
				t.Errorf("printed %q", text)
			}
		})
	}
}
