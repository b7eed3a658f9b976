// Command restate is the app of the peer Restate, whose server calls it over HTTP/2.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"

	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/ingress"
	"github.com/restatedev/sdk-go/server"

	"github.com/stepwell-dev/stepwell/bench/peers/load"
)

func main() {
	if err := serve(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(ctx context.Context) error {
	quiet := slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})
	handler, err := server.NewRestate().WithLogger(quiet, true).Bind(restate.Reflect(Bench{})).Handler()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true) // as the SDK's own Start
	go func() { fmt.Fprintln(os.Stderr, (&http.Server{Handler: handler, Protocols: &protocols}).Serve(l)) }()
	if err := register(ctx, os.Getenv("RESTATE_ADMIN"), "http://"+l.Addr().String()); err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost, transport.Proxy = 0, 4096, nil
	client := ingress.NewClient(os.Getenv("RESTATE_INGRESS"), ingress.WithHttpClient(&http.Client{Transport: transport}))
	return load.Serve(func(ctx context.Context, in load.Input) (int, error) { return run(ctx, client, in) })
}

// register registers the app's address at the server.
func register(ctx context.Context, admin, app string) error {
	body, err := json.Marshal(map[string]string{"uri": app})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, admin+"/deployments", bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := (&http.Client{Transport: &http.Transport{}}).Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("register the app: status %d: %s", answer.StatusCode, text)
	}
	return err
}

// run starts a run and waits for it: with one request, unless a signal comes between them.
func run(ctx context.Context, client *ingress.Client, in load.Input) (int, error) {
	id := rand.Text()
	start := ingress.Workflow[load.Input, int](client, "Bench", id, "Run")
	if !in.Signal {
		return start.Request(ctx, in)
	}
	started, err := start.Send(ctx, in)
	if err != nil {
		return 0, err
	}
	if _, err := ingress.Workflow[int, int](client, "Bench", id, "Signal").Request(ctx, 1); err != nil {
		return 0, err
	}
	return started.Attach(ctx)
}

// Bench is the service with the workflow.
type Bench struct{}

// Signal sends the signal to a run.
func (Bench) Signal(ctx restate.WorkflowSharedContext, n int) (int, error) {
	return n, restate.Promise[int](ctx, "signal").Resolve(n)
}

// Run is the workflow.
func (Bench) Run(ctx restate.WorkflowContext, in load.Input) (sum int, err error) {
	if in.Signal {
		if _, err := restate.Promise[int](ctx, "signal").Result(); err != nil {
			return 0, err
		}
		return 0, restate.Sleep(ctx, load.Nap)
	}
	if in.AtOnce {
		return atOnce(ctx, in.Steps)
	}
	for range in.Steps {
		n, err := restate.Run(ctx, step)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func step(restate.RunContext) (int, error) { return 1, nil }

func atOnce(ctx restate.Context, steps int) (sum int, err error) {
	all := make([]restate.RunAsyncFuture[int], steps)
	for i := range all {
		all[i] = restate.RunAsync(ctx, step)
	}
	for _, one := range all {
		n, err := one.Result()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
