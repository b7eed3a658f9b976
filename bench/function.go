package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"time"
)

const (
	// functionCommand makes the program the function.
	functionCommand = "function"
	serverVariable  = "BENCH_SERVER"

	wireDeployment     = "bench-wire"
	contractDeployment = "bench-contract"
	contractPath       = "/contract"
)

var functionReady = regexp.MustCompile(`^listening (\S+)$`)

// startFunction starts the function as a process of its own, so that its share of the processors can be told from ours.
func startFunction(ctx context.Context, c *client, r *reports) (p *process, url string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", fmt.Errorf("start function: %w", err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self, functionCommand)
	cmd.Env = append(os.Environ(), serverVariable+"="+c.url)
	p, addr, err := launch("function", cmd, functionReady, r.listen)
	return p, "http://" + addr, err
}

// function is an app of workflows whose steps do nothing, for the server to call: at the routes of the Workflow SDK,
// and at one endpoint for the plain contract.
type function struct {
	server *client
	*tracker
}

// serveFunction is the function's process. It ends by a signal.
func serveFunction(ctx context.Context, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if _, err := fmt.Fprintln(out, "listening", l.Addr()); err != nil {
		return fmt.Errorf("say where we listen: %w", err)
	}
	f := &function{newClient(os.Getenv(serverVariable), apiKey), newTracker(newFlushing(out))}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /.well-known/workflow/v1/flow", answering(f.flow))
	mux.HandleFunc("POST /.well-known/workflow/v1/step", answering(f.step))
	mux.HandleFunc("POST "+contractPath, answering(f.contract))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: patience}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	if err := s.Serve(l); ctx.Err() == nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// answering answers with what the handler returns, as JSON, or with its error.
func answering(do func(*http.Request, time.Time) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := do(r, time.Now())
		if err != nil {
			log.Print(err) // the bench shows it
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // the server may be gone
	}
}
