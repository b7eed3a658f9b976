package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/embedded"
	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

const (
	// embeddedCommand is the argument that runs the program as the app with a server in its process.
	embeddedCommand = "embedded"
	// databaseVariable has the URL of its database.
	databaseVariable = "DATABASE_URL"
)

// inboxless is eachStep without the inbox, which the SDK opens at the start of a run. By HTTP, the bench does so only
// if the shape wants it.
var inboxless = stepwell.NewWorkflow[string, int]("inboxless")

// startEmbedded starts the app with a server in its process.
func startEmbedded(ctx context.Context, _ *bench, of *contender) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start the app: %w", err)
	}
	database, err := of.newDatabase(ctx)
	if err != nil {
		return err
	}
	of.about = "default settings; each result is on disk before the next step begins; the app starts the runs itself"
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self, embeddedCommand)
	return of.loadBy(launchApp(cmd, "app with a server", databaseVariable+"="+of.cluster.url(database)))
}

// serveEmbedded is an app with a server in its process, which starts and awaits runs as the peers' apps do, until the
// context ends.
func serveEmbedded(ctx context.Context, out io.Writer) error {
	app := stepwell.NewApp(stepwell.AppConfig{Name: "bench"})
	app.Register(workStep(), inboxless.Bind(shaped), eachStep.Bind(shaped))
	server, err := embedded.Start(ctx, embedded.Config{
		DatabaseURL: os.Getenv(databaseVariable),
		Logger:      slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}, app)
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	c, err := stepwell.NewClient(stepwell.ClientConfig{URL: embedded.URL, HTTP: server.Client()})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if _, err := fmt.Fprintln(out, "listening", l.Addr().(*net.TCPAddr).Port); err != nil { //nolint:forcetypeassert // TCP
		return fmt.Errorf("print the port: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /measure/runs", answering(func(r *http.Request) ([]byte, error) {
		return measureEmbedded(r, c)
	}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: timeout}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	if err := s.Serve(l); ctx.Err() == nil {
		return fmt.Errorf("serve: %w", err)
	}
	return server.Close() //nolint:wrapcheck // says what has failed
}

// measureEmbedded carries out a measurement of runs in this process.
func measureEmbedded(r *http.Request, c *stepwell.Client) ([]byte, error) {
	var want measurement
	if err := json.NewDecoder(r.Body).Decode(&want); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	var mu sync.Mutex
	var got measured
	window := time.Duration(want.WindowMs) * time.Millisecond
	once := func(ctx context.Context, _ int, began time.Time) (time.Time, error) {
		err := executeEmbedded(ctx, c, want.Workflow)
		done := time.Now()
		mu.Lock()
		defer mu.Unlock()
		got.Latencies = append(got.Latencies, done.Sub(began).Seconds()*1e3)
		return done, err
	}
	s := closedLoop(r.Context(), want.InFlight, window, once)
	got.Seconds = s.Took.Seconds()
	if s.first != nil {
		return nil, s.first
	}
	return json.Marshal(got) //nolint:wrapcheck // numbers can be encoded
}

// executeEmbedded starts a run of a shape, sends it a message if the shape wants one, and waits for its end.
func executeEmbedded(ctx context.Context, c *stepwell.Client, shape string) error {
	if shape != signalShape {
		_, err := inboxless.Execute(ctx, c, shape)
		return err //nolint:wrapcheck // says what has failed
	}
	run, err := eachStep.Start(ctx, c, shape)
	if err == nil {
		err = signals.Send(ctx, c, run.ID(), 1)
	}
	if err == nil {
		_, err = run.Wait(ctx)
	}
	return err //nolint:wrapcheck // says what has failed
}
