package tests

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"syscall"
	"testing"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

var (
	lines   = stepwell.NewStream[string]("lines")
	writing = stepwell.NewWorkflow[string, string]("writing")
	write   = stepwell.NewStep[int, string]("write", stepwell.Remote())
)

// TestStreamsOutliveServers: who follows a stream from before its beginning sees each chunk at once, and once, while all
// servers are killed: those that the workflow writes, and those of a step whose call goes on.
func TestStreamsOutliveServers(t *testing.T) {
	t.Parallel()
	first := newServer(t)
	servers := []*server{first, first.beside(t)}
	client := first.client(t, "write")
	kept, seen := make(chan struct{}), make(chan struct{})
	app := stepwell.NewApp(stepwell.AppConfig{
		Name: "writing", Server: balance(t, servers, kept), Unsigned: "a test in one process",
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	app.Register(write.Bind(func(ctx context.Context, count int) (string, error) {
		for n := range count {
			lines.Write(stepwell.Streams(ctx), fmt.Sprintf("line %d", n))
			select {
			case <-seen: // the next one is not written before somebody has read this one
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
		return "done", nil
	}), writing.Bind(func(w *stepwell.Context, _ string) (string, error) {
		lines.Write(w, "begun")
		out, err := write.Run(w, 4)
		lines.Write(w, "over")
		return out, err
	}))
	h, err := app.Handler()
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(h)
	t.Cleanup(listener.Close)
	first.admin(t, http.MethodPut, "/v1/deployments/writing", map[string]any{"url": listener.URL}, nil)
	run, err := writing.Start(t.Context(), client, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line, err := range lines.Follow(t.Context(), client, run.ID(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, line); line == "line 1" {
			for _, s := range servers { // one of them has made the call, and one serves the reader
				<-kept
				if err := s.stop(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				s.start(t)
			}
		}
		if line != "begun" && line != "over" {
			seen <- struct{}{}
		}
	}
	if want := []string{"begun", "line 0", "line 1", "line 2", "line 3", "over"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if out, err := run.Wait(t.Context()); err != nil || out != "done" {
		t.Errorf("got %q, %v", out, err)
	}
	var rest []string
	for line, err := range lines.Follow(t.Context(), client, run.ID(), -2) {
		if err != nil {
			t.Fatal(err)
		}
		rest = append(rest, line)
	}
	if want := []string{"line 3", "over"}; !slices.Equal(rest, want) {
		t.Errorf("the last two are %q, want %q", rest, want)
	}
}
