package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

const (
	// functionCommand is the argument that runs the program as the function.
	functionCommand = "function"
	serverVariable  = "BENCH_SERVER"

	wireDeployment     = "bench-wire"
	contractDeployment = "bench-contract"
	contractPath       = "/contract"
)

var functionReady = regexp.MustCompile(`(?m)^listening (\S+)$`)

// startFunction starts the function as a separate process, so that its CPU time can be measured separately.
func startFunction(ctx context.Context, c *client, done *completions) (p *harness.Process, url string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", fmt.Errorf("start function: %w", err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self, functionCommand)
	cmd.Env = append(os.Environ(), serverVariable+"="+c.url)
	cmd.Stderr = &lines{do: done.listen}
	p, addr, err := harness.Launch("function", cmd, functionReady)
	return p, "http://" + addr, err //nolint:wrapcheck // says what has failed
}

// lines calls a function with each line that is written.
type lines struct {
	do   func(line string)
	rest []byte // the beginning of a line
}

func (l *lines) Write(data []byte) (int, error) {
	l.rest = append(l.rest, data...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(data), nil
		}
		l.do(string(line))
		l.rest = rest
	}
}

// timeout limits the waits for the function.
const timeout = 60 * time.Second

// function is an app with workflows whose steps do nothing. The server calls it at the routes of the Workflow SDK, and
// at one endpoint for the function contract.
type function struct {
	server *client
	out    *json.Encoder // of completions
}

// serveFunction serves the function until the context ends.
func serveFunction(ctx context.Context, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if _, err := fmt.Fprintln(out, "listening", l.Addr()); err != nil {
		return fmt.Errorf("print address: %w", err)
	}
	f := &function{newClient(os.Getenv(serverVariable), apiKey), json.NewEncoder(newFlushing(out))}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /.well-known/workflow/v1/flow", answering(f.flow))
	mux.HandleFunc("POST /.well-known/workflow/v1/step", answering(f.step))
	mux.HandleFunc("POST "+contractPath, answering(f.contract))
	app, err := goHandler()
	if err != nil {
		return fmt.Errorf("serve the app: %w", err)
	}
	mux.Handle("POST "+goPath, app)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: timeout}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	if err := s.Serve(l); ctx.Err() == nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// answering answers with the JSON that the handler returns, or with its error.
func answering(do func(*http.Request) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := do(r)
		if err != nil {
			log.Print(err) // the bench prints it
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // the server may be gone
	}
}
