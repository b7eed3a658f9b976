package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/stepwell-dev/stepwell/handlers/telemetry"
)

// versionCmd prints what this binary was built from.
type versionCmd struct{}

// Run prints a line such as "stepwell v0.1.0, commit 3f20b23… (modified), go1.26.8 linux/amd64".
func (versionCmd) Run(stdout io.Writer) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	_, err := fmt.Fprintf(stdout, "stepwell %s%s, %s %s/%s\n",
		version(), commit(info.Settings), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// build says what this binary was built from.
func build() telemetry.Build {
	b := telemetry.Build{Version: version(), Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Commit = strings.TrimPrefix(commit(info.Settings), ", commit ")
	}
	return b
}

// commit returns the commit of a build, and whether files were changed since; empty if the build did not record it.
func commit(settings []debug.BuildSetting) (text string) {
	values := map[string]string{}
	for _, s := range settings {
		values[s.Key] = s.Value
	}
	if values["vcs.revision"] == "" {
		return ""
	}
	text = ", commit " + values["vcs.revision"]
	if values["vcs.modified"] == "true" {
		text += " (modified)"
	}
	return text
}

// version returns the version of the module, or the commit of a development build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" && info.Main.Version == "(devel)" {
			return setting.Value
		}
	}
	return info.Main.Version
}
