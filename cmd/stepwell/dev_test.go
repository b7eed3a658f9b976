package main

import (
	"strconv"
	"testing"

	"github.com/stepwell-dev/stepwell/cmd/stepwell/remote"
)

func TestDevOpensTheDashboardOnAFirstStartBeforeAPerson(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	person := devStart{first: true, terminal: true, goos: "linux"}
	for name, tt := range map[string]struct {
		change func(*devStart)
		env    map[string]string
		want   bool
	}{
		"first start":          {env: map[string]string{"DISPLAY": ":0"}, want: true},
		"Wayland":              {env: map[string]string{"WAYLAND_DISPLAY": "wayland-0"}, want: true},
		"a Mac":                {change: func(s *devStart) { s.goos = "darwin" }, want: true},
		"Windows":              {change: func(s *devStart) { s.goos = "windows" }, want: true},
		"no display":           {},
		"an empty display":     {env: map[string]string{"DISPLAY": ""}},
		"later start":          {change: func(s *devStart) { s.first = false }, env: map[string]string{"DISPLAY": ":0"}},
		"a pipe":               {change: func(s *devStart) { s.terminal = false }, env: map[string]string{"DISPLAY": ":0"}},
		"CI":                   {env: map[string]string{"DISPLAY": ":0", "CI": "true"}},
		"SSH with a display":   {env: map[string]string{"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "a 1 b 22"}},
		"SSH to a Mac":         {change: func(s *devStart) { s.goos = "darwin" }, env: map[string]string{"SSH_TTY": "/dev/ttys0"}},
		"asked for":            {change: func(s *devStart) { *s = devStart{asked: &yes, goos: "linux"} }, want: true},
		"asked for over SSH":   {change: func(s *devStart) { s.asked = &yes }, env: map[string]string{"SSH_TTY": "/dev/ttys0"}, want: true},
		"asked not to":         {change: func(s *devStart) { s.asked = &no }, env: map[string]string{"DISPLAY": ":0"}},
		"a Mac, asked not to":  {change: func(s *devStart) { s.asked, s.goos = &no, "darwin" }},
		"a Mac in CI, no TTY":  {change: func(s *devStart) { s.goos, s.terminal = "darwin", false }, env: map[string]string{"CI": "1"}},
		"a Mac, second start":  {change: func(s *devStart) { s.goos, s.first = "darwin", false }},
		"a Mac, no terminal":   {change: func(s *devStart) { s.goos, s.terminal = "darwin", false }},
		"other system, no DPY": {change: func(s *devStart) { s.goos = "freebsd" }},
	} {
		s := person
		s.env = func(name string) (string, bool) { v, ok := tt.env[name]; return v, ok }
		if tt.change != nil {
			env := s.env
			tt.change(&s)
			s.env = env
		}
		if got := s.opensBrowser(); got != tt.want {
			t.Errorf("%s: got %t, want %t", name, got, tt.want)
		}
	}
}

// TestOpenFlag checks the three forms of the question.
func TestOpenFlag(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		env  string
		want string
	}{
		"nothing": {want: "nil"}, "--open": {args: []string{"--open"}, want: "true"}, "--no-open": {args: []string{"--no-open"}, want: "false"},
		"setting": {env: "false", want: "false"}, "flag before setting": {args: []string{"--open"}, env: "false", want: "true"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.env != "" {
				t.Setenv("STEPWELL_OPEN_BROWSER", tt.env)
			}
			var commands cli
			p, err := newParser(&commands, remote.Console{Stdout: t.Output(), Stderr: t.Output()})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Parse(append([]string{"dev"}, tt.args...)); err != nil {
				t.Fatal(err)
			}
			got := "nil"
			if open := commands.Dev.Open; open != nil {
				got = strconv.FormatBool(*open)
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
