package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type uiCmd struct {
	Print bool `help:"Only print the address. It signs in whoever opens it first, within a minute."`
}

// Run opens the dashboard at an address that signs in, once.
func (c uiCmd) Run(ctx context.Context, s *Session) error {
	var made api.SignInCode
	if _, err := s.client.call(ctx, http.MethodPost, path("ui", "codes"), nil, &made); err != nil {
		return err
	}
	address := s.client.base.String() + "/ui/"
	if made.Code != "" { // a server that needs no key has none
		address += "-/login#code=" + made.Code
	}
	if !c.Print && CanOpenBrowser(runtime.GOOS, os.LookupEnv) && OpenBrowser(ctx, address) == nil {
		s.note("opened the dashboard of %s", s.client.base.Redacted())
		return nil
	}
	_, err := fmt.Fprintln(s.Stdout, address)
	return err
}

// CanOpenBrowser reports whether a browser that this program opens would appear before the person who runs it: there is
// a display, and the program runs neither in CI nor over SSH.
func CanOpenBrowser(goos string, env func(string) (string, bool)) bool {
	has := func(name string) bool { v, _ := env(name); return v != "" }
	switch {
	case has("CI"), has("SSH_CONNECTION"), has("SSH_TTY"):
		return false
	case goos == "windows", goos == "darwin":
		return true
	default:
		return has("DISPLAY") || has("WAYLAND_DISPLAY")
	}
}

// OpenBrowser opens an address in the browser of the person who runs the program.
func OpenBrowser(ctx context.Context, address string) error {
	name, args := "xdg-open", []string{address}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), name, args...) //nolint:gosec // one of three programs
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("open browser: %w", err)
	}
	go func() { _ = cmd.Wait() }() // the browser may live as long as this program
	return nil
}

type sessionsCmd struct {
	List listCmd[sessionRow, none] `cmd:"" at:"ui/sessions" help:"List the sessions that have opened the key's project."`
	End  removeCmd[ids]            `cmd:"" at:"DELETE ui/sessions/*" help:"End sessions for the key's project. Their keys stay valid."`
}

type sessionRow api.Session

func (u sessionRow) columns() []field {
	return []field{
		{"id", u.ID}, {"key", u.KeyID}, {"name", u.KeyName}, {"role", u.Role}, {"created", u.CreatedAt},
		{"used", u.UsedAt},
	}
}

type serversCmd struct{}

func serverColumns(p api.ServerProcess) []field {
	return []field{
		{"id", p.ID}, {"host", p.Host}, {"version", p.Version}, {"commit", p.Commit}, {"role", p.Role},
		{"started", p.StartedAt}, {"last beat", p.BeatAt}, {"deliveries", p.Deliveries},
	}
}

func strandedColumns(r api.StrandedRun) []field {
	return []field{
		{"stranded run", r.RunID}, {"project", r.Project}, {"workflow", r.Workflow}, {"since", r.Since},
		{"wakes", r.Wakes}, {"reason", r.Reason},
	}
}

// Run lists the servers, and then the stranded runs if there are any.
func (serversCmd) Run(ctx context.Context, s *Session) error {
	var found api.Servers
	raw, err := s.client.get(ctx, path("servers"), nil, &found)
	if err != nil || s.json {
		return errors.Join(err, s.printJSON(raw))
	}
	if err := printItems(s, serverColumns, found.Servers); err != nil {
		return err
	}
	if found.Capped {
		s.note("more than 10,000 deliveries are under way; not all are counted")
	}
	if len(found.Stranded) == 0 {
		return nil
	}
	_, _ = fmt.Fprintln(s.Stdout)
	if err := printItems(s, strandedColumns, found.Stranded); err != nil {
		return err
	}
	if found.MoreStranded {
		s.note("more runs are stranded: the first %d are shown", len(found.Stranded))
	}
	return nil
}
