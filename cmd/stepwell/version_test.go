package main

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionCommand(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := (versionCmd{}).Run(&out); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "stepwell "+version()) || !strings.Contains(got, runtime.Version()) {
		t.Errorf("got %q", got)
	}
}

func TestCommitOfABuild(t *testing.T) {
	t.Parallel()
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	for want, settings := range map[string][]debug.BuildSetting{
		"":                        {setting("GOOS", "linux")},
		", commit abc":            {setting("vcs.revision", "abc"), setting("vcs.modified", "false")},
		", commit abc (modified)": {setting("vcs.revision", "abc"), setting("vcs.modified", "true")},
	} {
		if got := commit(settings); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
