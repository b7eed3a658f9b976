package testdb

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/migrations/localpg"
)

// starts returns a source that returns an instance of the address, or the error.
func starts(dsn string, err error) func(context.Context) (instance, error) {
	return func(context.Context) (instance, error) {
		if err != nil {
			return instance{}, err
		}
		return instance{dsn: dsn, stop: func(context.Context) error { return nil }}, nil
	}
}

// unused returns a source that must not be tried.
func unused(t *testing.T) func(context.Context) (instance, error) {
	return func(context.Context) (instance, error) {
		t.Error("a later source was tried")
		return instance{}, nil
	}
}

func TestFirstAvailableSourceIsUsed(t *testing.T) {
	t.Parallel()
	missing := &localpg.MissingError{Tried: []string{"PATH: no programs"}}
	tests := []struct {
		name, given string
		sources     sources
		want        string
		started     bool
	}{
		{"TEST_DATABASE_URL", "given", sources{unused(t), unused(t)}, "given", false},
		{"installed programs", "", sources{starts("installed", nil), unused(t)}, "installed", true},
		{"container", "", sources{starts("", missing), starts("container", nil)}, "container", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := tt.sources.find(t.Context(), tt.given)
			if err != nil {
				t.Fatal(err)
			}
			if got.dsn != tt.want || (got.stop != nil) != tt.started {
				t.Errorf("got %q, to be stopped: %v, want %q, %v", got.dsn, got.stop != nil, tt.want, tt.started)
			}
		})
	}
}

func TestFailingSourceIsNotPassedOver(t *testing.T) {
	t.Parallel()
	missing, broken := &localpg.MissingError{}, errors.New("it is broken")
	for name, s := range map[string]sources{
		"installed programs": {starts("", broken), unused(t)},
		"container":          {starts("", missing), starts("", broken)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := s.find(t.Context(), ""); !errors.Is(err, broken) {
				t.Errorf("got error %v, want that of the source", err)
			}
		})
	}
}

// noPostgres is the error on a machine that has no source at all.
const noPostgres = `TEST_DATABASE_URL is not set: no Postgres found. Do one of these:
  Debian, Ubuntu:  apt-get install postgresql
  Fedora, RHEL:    dnf install postgresql-server
  Alpine:          apk add postgresql17
  macOS:           brew install postgresql@17
  anywhere:        start Docker, or use the address of a server you already have
Tried:
  PATH: no programs
  Docker: no socket; no daemon`

func TestWithoutAnySourceTheErrorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s := sources{
		installed: starts("", &localpg.MissingError{Tried: []string{"PATH: no programs"}}),
		container: starts("", &noDaemonError{errors.New("no socket\nno daemon")}),
	}
	_, err := openServer(t.Context(), "", s)
	if err == nil {
		t.Fatal("got no error")
	}
	if diff := cmp.Diff(noPostgres, err.Error()); diff != "" {
		t.Errorf("the message differs (-want +got):\n%s", diff)
	}
}
