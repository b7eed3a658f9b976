package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// healthTimeout is longer than a server that is ready takes to say so.
const healthTimeout = 4 * time.Second

// healthCmd is for containers, in whose images there is nothing else that could ask.
type healthCmd struct{}

// Run asks the server at STEPWELL_LISTEN on this machine whether it is ready, and fails if it is not.
func (healthCmd) Run(ctx context.Context, stdout io.Writer, config config) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	addr, err := reachable(config.Listen)
	if err != nil {
		return fmt.Errorf("STEPWELL_LISTEN: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: &http.Transport{}}).Do(req) // a proxy leads elsewhere
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", addr, resp.Status, answer)
	}
	_, err = stdout.Write(answer)
	return err
}

// reachable is the address of this machine at which to find who listens at an address, which may be all addresses.
func reachable(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", err
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1" // which needs no /etc/hosts
	}
	return net.JoinHostPort(host, port), nil
}
