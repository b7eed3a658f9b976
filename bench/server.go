package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"time"
)

// serverReady is what a server with STEPWELL_LOG=json says when it is ready.
var serverReady = regexp.MustCompile(`"msg":"listening","addr":"([^"]+)"`)

// apiKey is what lets the bench and its function in.
const apiKey = "bench"

// startServer starts the server on a database, as a user does, with default settings.
func (b *bench) startServer(ctx context.Context, database, serverRole string) (*process, *client, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), b.server, "serve", "--role", serverRole)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"DATABASE_URL=" + b.cluster.url(role, database),
		"STEPWELL_API_KEY=" + apiKey,
		"STEPWELL_LISTEN=127.0.0.1:0",
		"STEPWELL_ALLOW_ADDRESSES=loopback", // where the bench's function is
		"STEPWELL_LOG=json",                 // says "listening" with the address
	}
	p, addr, err := launch("server", cmd, serverReady, nil)
	if err != nil {
		return nil, nil, err
	}
	return p, newClient("http://"+addr, apiKey), nil
}

// scene is a server on a database of its own, and if it delivers, the function to which it does.
type scene struct {
	meter

	database string
	client   *client
	reports  *reports
}

// setScene starts a server that has the given role on a new database, and a function where that is of use.
func (b *bench) setScene(ctx context.Context, serverRole string) (s *scene, err error) {
	database, err := b.cluster.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	s = &scene{meter: meter{cluster: b.cluster}, database: database, reports: newReports()}
	defer func() {
		if err != nil {
			_ = s.clear() // the first error tells more
		}
	}()
	if s.server, s.client, err = b.startServer(ctx, database, serverRole); err != nil {
		return nil, err
	}
	if serverRole == "api" {
		return s, nil
	}
	var url string
	if s.function, url, err = startFunction(ctx, s.client, s.reports); err != nil {
		return nil, err
	}
	for deployment, path := range map[string]string{wireDeployment: "", contractDeployment: contractPath} {
		if err := s.client.deploy(ctx, deployment, url+path); err != nil {
			return nil, fmt.Errorf("register the function: %w", err)
		}
	}
	return s, nil
}

// drained waits until no messages are left: what an overload has left behind is not to be the next one's.
func (s *scene) drained(ctx context.Context) error {
	return s.cluster.drained(ctx, s.database, "messages")
}

// drained waits until that table of a database is empty.
func (c *cluster) drained(ctx context.Context, database, messages string) error {
	conn, err := c.open(ctx, database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for deadline := time.Now().Add(runPatience); ; time.Sleep(20 * time.Millisecond) {
		var left int
		if err := conn.QueryRow(ctx, `SELECT count(*) FROM `+messages).Scan(&left); err != nil {
			return fmt.Errorf("look for messages: %w", err)
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d messages are left after %s", left, runPatience)
		}
	}
}

// clear stops what the scene has started, and drops its database.
func (s *scene) clear() error {
	if err := s.stop(); err != nil {
		return err
	}
	return s.cluster.drop(s.database)
}

// stop stops what the scene has started. The server goes first: it finishes what it is delivering.
func (s *scene) stop() error {
	for _, p := range []*process{s.server, s.function} {
		if p == nil {
			continue
		}
		if err := p.stop(); err != nil {
			return err
		}
	}
	return nil
}
