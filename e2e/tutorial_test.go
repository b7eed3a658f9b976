package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

const tutorialTimeout = 3 * harness.Timeout // it takes half a minute

// tutorial is a document, or a section of it, whose commands are run.
type tutorial struct {
	doc, section string // all sections: empty
	program      string // name of the file that its code is saved as
	outputs      int    // how many outputs it shows at least
}

// TestTutorialRunsAsWritten pastes the commands of docs/tutorial.md into one shell, in order, and compares what they
// print with what the tutorial shows. Only the ports differ, and the clone and the build are stood in for.
func TestTutorialRunsAsWritten(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	tutorial{doc: "../docs/tutorial.md", program: "order.py", outputs: 4}.run(t)
}

// TestGoSDKQuickStartRunsAsWritten does the same with the first section of docs/sdk-go.md.
func TestGoSDKQuickStartRunsAsWritten(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	tutorial{doc: "../docs/sdk-go.md", section: "From an empty folder to a run", program: "main.go", outputs: 1}.run(t)
}

// TestPythonSDKQuickStartRunsAsWritten does the same with that of docs/sdk-python.md.
func TestPythonSDKQuickStartRunsAsWritten(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	tutorial{doc: "../docs/sdk-python.md", section: "From an empty folder to a run", program: "app.py", outputs: 1}.run(t)
}

func (tu tutorial) run(t *testing.T) {
	t.Helper()
	functionPort, serverPort := freePort(t), freePort(t)
	blocks := tu.read(t, functionPort, serverPort)
	outputs := tu.paste(t, blocks, functionPort, serverPort)
	shown := 0
	for i, b := range blocks {
		if b.language != "text" {
			continue
		}
		shown++
		if got := outputs[i-1]; !showsOutput(b.text, got) {
			t.Errorf("%s: these commands\n%sprint\n%swant\n%s", tu.doc, blocks[i-1].text, got, b.text)
		}
	}
	if shown < tu.outputs {
		t.Errorf("%s shows the output of %d blocks of commands, want at least %d", tu.doc, shown, tu.outputs)
	}
}

// codeBlock is a fenced block: sh is run, text is what the block before it prints, and other ones are the program.
type codeBlock struct{ language, text string }

// read returns the code blocks of the tutorial, in which function and server listen on the given ports.
func (tu tutorial) read(t *testing.T, function, server string) []codeBlock {
	t.Helper()
	data, err := os.ReadFile(tu.doc)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if tu.section != "" {
		_, text, _ = strings.Cut(text, "\n## "+tu.section+"\n")
		text, _, _ = strings.Cut(text, "\n## ")
	}
	ports := strings.NewReplacer("3000", function, "8788", server)
	var blocks []codeBlock
	count := map[string]int{}
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		b := codeBlock{m[1], ports.Replace(m[2])}
		count[b.language]++
		if b.language == "text" && (len(blocks) == 0 || blocks[len(blocks)-1].language != "sh") {
			t.Fatalf("%s: no block of commands stands before this output:\n%s", tu.doc, b.text)
		}
		blocks = append(blocks, b)
	}
	if count["python"]+count["go"] != 1 || len(count) != 3 {
		t.Fatalf("%s has blocks %v, want one program, and others of sh and text", tu.doc, count)
	}
	return blocks
}

// prelude stands in for the clone and the build. When the standard input ends, because the script or the test has
// ended, whatever is left of the process group is killed: nothing outlives the test.
const prelude = `
exec 3<&0 </dev/null
{ read -r <&3 || kill -KILL -- -$$; } &
git() { [ "$*" = 'clone https://github.com/stepwell-dev/stepwell' ] && mkdir stepwell && ln -s "$SDK" stepwell/sdk; }
make() { [ "$*" = build ] && mkdir bin && ln -s "$PROGRAM" bin/stepwell; }
`

// epilogue waits for the server, which has to stop in good order.
const epilogue = `
wait $server
`

// paste runs the tutorial in a folder of its own, and returns what each block printed.
func (tu tutorial) paste(t *testing.T, blocks []codeBlock, functionPort, serverPort string) []string {
	t.Helper()
	dir := harness.OpenDir(t)
	program, err := harness.ServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	listen := "127.0.0.1:" + serverPort
	sdk, err := filepath.Abs("../sdk")
	if err != nil {
		t.Fatal(err)
	}
	env := cleanEnv("PROGRAM="+program, "SDK="+sdk, "PORT="+functionPort, "STEPWELL_LISTEN="+listen,
		"STEPWELL_URL=http://"+listen, "STEPWELL_DATA_DIR="+filepath.Join(dir, "postgres"))
	if err := runScript(t, dir, tu.script(dir, blocks), env); err != nil {
		for _, name := range []string{"stderr", "tutorial/server.log", "tutorial/function.log", "orders/server.log", "orders/app.log"} {
			text, _ := os.ReadFile(filepath.Join(dir, name)) // the script may have failed before it wrote one
			t.Logf("%s:\n%s", name, text)
		}
		t.Fatalf("%s: %v", tu.doc, err)
	}
	printed := make([]string, len(blocks))
	for i, b := range blocks {
		if b.language != "sh" {
			continue
		}
		text, err := os.ReadFile(outputOf(dir, i))
		if err != nil {
			t.Fatal(err)
		}
		printed[i] = string(text)
	}
	return printed
}

// script is all blocks as one script, in which each writes its output to a file.
func (tu tutorial) script(dir string, blocks []codeBlock) string {
	script := prelude
	for i, b := range blocks {
		switch b.language {
		case "sh":
			script += fmt.Sprintf("exec >'%s'\n%s", outputOf(dir, i), b.text)
		case "text":
		default:
			script += fmt.Sprintf("cat >%s <<'END OF PROGRAM'\n%sEND OF PROGRAM\n", tu.program, b.text)
		}
	}
	return script + epilogue
}

func outputOf(dir string, block int) string {
	return filepath.Join(dir, fmt.Sprintf("output-%d", block))
}

// runScript runs a script in a process group of its own until its first error. Its standard error goes to a file.
func runScript(t *testing.T, dir, script string, env []string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tutorialTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-eu", "-c", script)
	cmd.Dir, cmd.Env = dir, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if _, err := cmd.StdinPipe(); err != nil { // Run closes it when the script has ended
		t.Fatal(err)
	}
	stderr, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = stderr
	return errors.Join(cmd.Run(), stderr.Close(), ctx.Err())
}

// showsOutput reports whether the text is what was printed. In the text, … stands for anything in its line, and any
// number of spaces for any other.
func showsOutput(text, printed string) bool {
	pattern := regexp.MustCompile(` +`).ReplaceAllString(regexp.QuoteMeta(text), " +")
	return regexp.MustCompile(`^` + strings.ReplaceAll(pattern, "…", `.*`) + `$`).MatchString(printed)
}

// triedPort is the last port that a test of this package has tried: no two of them get the same.
var triedPort atomic.Int64

// freePort returns a port that nobody listens on, below those that the kernel gives to others who ask for any.
func freePort(t *testing.T) string {
	t.Helper()
	const lowest, highest = 20000, 32000
	for range highest - lowest {
		port := lowest + (int64(os.Getpid())*2+triedPort.Add(1))%(highest-lowest)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return strconv.FormatInt(port, 10)
	}
	t.Fatal("no port is free")
	return ""
}
