package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/server"
)

func TestHealthChecksReadiness(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t), server.RoleAPI)
	mustStart(t, s)
	c := s.config
	c.Listen = s.Addr()
	var out bytes.Buffer
	if err := (healthCmd{}).Run(t.Context(), &out, c); err != nil || !strings.Contains(out.String(), `"ok"`) {
		t.Errorf("ready: got %s and %v", &out, err)
	}
	s.Pool().Close()
	if err := (healthCmd{}).Run(t.Context(), &out, c); err == nil || !strings.Contains(err.Error(), "unreachable") {
		t.Errorf("without the database: got %v", err)
	}
	s.stop(t.Context())
	if err := (healthCmd{}).Run(t.Context(), &out, c); err == nil {
		t.Error("stopped: no error")
	}
	c.Listen = "nowhere"
	if err := (healthCmd{}).Run(t.Context(), &out, c); err == nil || !strings.Contains(err.Error(), "STEPWELL_LISTEN") {
		t.Errorf("invalid address: got %v", err)
	}
}

func TestDialAddr(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		":8788": "127.0.0.1:8788", "0.0.0.0:1": "127.0.0.1:1", "[::]:2": "127.0.0.1:2",
		"127.0.0.1:3": "127.0.0.1:3", "host.test:4": "host.test:4", "[::1]:5": "[::1]:5",
	} {
		if got, err := dialAddr(listen); got != want || err != nil {
			t.Errorf("%s: got %s and %v, want %s", listen, got, err, want)
		}
	}
}
