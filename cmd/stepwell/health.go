package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// healthTimeout exceeds the time that a ready server takes to answer.
const healthTimeout = 4 * time.Second

// healthCmd is the health check of containers, whose image has no HTTP client.
type healthCmd struct{}

// Run requests /readyz of the server at STEPWELL_LISTEN, and fails if the server is not ready.
func (healthCmd) Run(ctx context.Context, stdout io.Writer, config config) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	addr, err := dialAddr(config.Listen)
	if err != nil {
		return fmt.Errorf("STEPWELL_LISTEN: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Scheme()+"://"+addr+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: &http.Transport{ // without a proxy
		// The certificate has another name than this address. The request has no secret, and stays on this machine.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
	}}).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s returned %s: %s", addr, resp.Status, answer)
	}
	_, err = stdout.Write(answer)
	return err
}

// dialAddr returns the address to dial for a listen address, which may be unspecified such as ":8788".
func dialAddr(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", err
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1" // localhost would need /etc/hosts
	}
	return net.JoinHostPort(host, port), nil
}
