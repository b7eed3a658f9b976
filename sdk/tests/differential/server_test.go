package differential

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// realURL is the address of the real server, which all tests share, and program its binary.
var realURL, program string

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		_ = flag.Set("rapid.checks", "40") // each takes a quarter of a second
	}
	_ = os.Setenv("STEPWELL_API_KEY", apiKey) // for the command replay; the name is valid
	code, err := withServer(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// startTimeout limits the start of a server: a new Postgres takes some seconds on a busy machine.
const startTimeout = 2 * time.Minute

// withServer builds and starts a server with the Postgres of TEST_DATABASE_URL, or with one of its own.
func withServer(run func() int) (code int, err error) {
	dir, err := os.MkdirTemp("", "stepwell-differential-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // for the user of Postgres, if this one is root
		return 0, err
	}
	program = filepath.Join(dir, "stepwell")
	build := exec.Command("go", "build", "-o", program, "./cmd/stepwell")
	build.Dir = filepath.Join("..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the server: %w\n%s", err, out)
	}
	mode, env := "dev", "STEPWELL_DATA_DIR="+filepath.Join(dir, "postgres")
	if database := os.Getenv("TEST_DATABASE_URL"); database != "" {
		mode, env = "serve", "DATABASE_URL="+database
	}
	cmd := exec.Command(program, mode)
	cmd.Env = []string{
		env, "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "STEPWELL_LOG=json", "STEPWELL_LISTEN=127.0.0.1:0",
		"STEPWELL_ALLOW_ADDRESSES=loopback", "STEPWELL_SCHEMA=differential_" + strings.ToLower(rand.Text()[:12]),
		"STEPWELL_API_KEY=" + apiKey,
	}
	out := &output{found: make(chan string, 1)}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}()
	select {
	case addr := <-out.found:
		realURL = "http://" + addr
	case <-time.After(startTimeout):
		return 0, fmt.Errorf("the server does not listen:\n%s", out)
	}
	return run(), nil
}

// apiKey is the server's key.
const apiKey = "sk_differential_0123456789abcdef"

var listening = regexp.MustCompile(`"msg":"listening","addr":"([^"]+)"`)

// output finds the server's address in what it prints.
type output struct {
	found chan string

	mu   sync.Mutex
	text bytes.Buffer
	done bool
}

// Write implements io.Writer.
func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(data)
	if m := listening.FindSubmatch(o.text.Bytes()); m != nil && !o.done {
		o.done = true
		o.found <- string(m[1])
	}
	return len(data), nil
}

// String returns all of it.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// request sends a request to the real server, and decodes the answer. It returns the status.
func request(ctx context.Context, method, path string, body, into any) (int, error) {
	return requestAs(ctx, apiKey, method, path, body, into)
}

// requestAs is request with another credential.
func requestAs(ctx context.Context, credential, method, path string, body, into any) (int, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, method, realURL+path, bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+credential)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && into != nil && resp.StatusCode/100 == 2 {
		err = json.Unmarshal(answer, into)
	}
	return resp.StatusCode, err
}
