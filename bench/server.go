package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// apiKey is the API key of the bench and its function.
const apiKey = "sk_bench_0123456789abcdef"

// startServer starts the server on a database with default settings and these.
func (b *bench) startServer(
	ctx context.Context, database, serverRole string, settings ...string,
) (*harness.Process, *client, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), b.server, "serve", "--role", serverRole)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"DATABASE_URL=" + b.cluster.url(database),
		"STEPWELL_API_KEY=" + apiKey,
		"STEPWELL_LISTEN=127.0.0.1:0",
		"STEPWELL_ALLOW_ADDRESSES=loopback", // for the bench's function
		"STEPWELL_LOG=json",                 // logs "listening" with the address
	}, settings...)
	p, addr, err := harness.Launch("server", cmd, harness.ServerReady)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // says what has failed
	}
	return p, newClient("http://"+addr, apiKey), nil
}

// testbed is a server on its own database and, unless the server only serves the API, the function.
type testbed struct {
	meter

	database    string
	client      *client
	completions *completions
}

// newTestbed starts a server with the given role on a new database, and a function unless the role is "api".
func (b *bench) newTestbed(ctx context.Context, serverRole string) (s *testbed, err error) {
	database, err := b.cluster.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	s = &testbed{meter: meter{cluster: b.cluster}, database: database, completions: newCompletions()}
	defer func() {
		if err != nil {
			_ = s.clear() // report the first error
		}
	}()
	if s.server, s.client, err = b.startServer(ctx, database, serverRole); err != nil {
		return nil, err
	}
	if serverRole == "api" {
		return s, nil
	}
	var url string
	if s.function, url, err = startFunction(ctx, s.client, s.completions); err != nil {
		return nil, err
	}
	for deployment, path := range map[string]string{
		wireDeployment: "", contractDeployment: contractPath, goDeployment: goPath,
	} {
		if err := s.client.deploy(ctx, deployment, url+path); err != nil {
			return nil, fmt.Errorf("register the function: %w", err)
		}
	}
	for _, name := range []string{"seq-1", openCase, "seq-10", "wide-50"} {
		of, err := shapeOf(name)
		if err == nil {
			err = s.client.putFlow(ctx, flowDocument(name, of))
		}
		if err != nil {
			return nil, fmt.Errorf("store the flow of %s: %w", name, err)
		}
	}
	return s, nil
}

// awaitEmptyQueue waits until no messages are left, so that an overload does not affect the next measurement.
func (s *testbed) awaitEmptyQueue(ctx context.Context) error {
	return s.cluster.awaitEmpty(ctx, s.database, "messages")
}

// awaitEmpty waits until a table is empty.
func (c *cluster) awaitEmpty(ctx context.Context, database, messages string) error {
	conn, err := c.open(ctx, database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for deadline := time.Now().Add(runTimeout); ; time.Sleep(20 * time.Millisecond) {
		var left int
		if err := conn.QueryRow(ctx, `SELECT count(*) FROM `+messages).Scan(&left); err != nil {
			return fmt.Errorf("count messages: %w", err)
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d messages are left after %s", left, runTimeout)
		}
	}
}

// clear stops the processes and drops the database.
func (s *testbed) clear() error {
	if err := s.stop(); err != nil {
		return err
	}
	return s.cluster.drop(s.database)
}

// stop stops the server first, so that it can finish its deliveries, and then the function.
func (s *testbed) stop() error {
	for _, p := range []*harness.Process{s.server, s.function} {
		if p == nil {
			continue
		}
		if err := p.Terminate(); err != nil {
			return err //nolint:wrapcheck // says what has failed
		}
	}
	return nil
}
