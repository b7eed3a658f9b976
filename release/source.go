package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// source is a commit in a folder of its own.
type source struct {
	folder  string
	version string // v0.1.0
	commit  string
	time    time.Time // of the commit: the time of everything in the release
}

// number is the version without its v.
func (s source) number() string { return strings.TrimPrefix(s.version, "v") }

// path returns a path in the source.
func (s source) path(name string) string { return filepath.Join(s.folder, name) }

var semantic = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// checkOut clones what is checked out in a repository, and gives the commit the tag of the version: the Go command then
// writes version and commit into binaries, whether or not the tag is there already.
func checkOut(ctx context.Context, repository, version, folder string) (source, error) {
	s := source{folder: folder, version: version}
	if !semantic.MatchString(version) {
		return s, fmt.Errorf("the version %q is not like v0.1.0: make release VERSION=v0.1.0", version)
	}
	changed, err := output(ctx, repository, nil, "git", "status", "--porcelain")
	if err != nil {
		return s, err
	}
	if changed != "" {
		return s, fmt.Errorf("commit or remove what is not in the commit, or it would not be in the release:\n%s", changed)
	}
	if s.commit, err = output(ctx, repository, nil, "git", "rev-parse", "HEAD"); err != nil {
		return s, err
	}
	tagged, err := output(ctx, repository, nil, "git", "rev-parse", "--verify", "--quiet",
		"refs/tags/"+version+"^{commit}")
	if err == nil && tagged != s.commit {
		return s, fmt.Errorf("the tag %s is the commit %s: check it out", version, tagged)
	}
	for _, args := range [][]string{
		{"clone", "--quiet", "--no-tags", "--no-checkout", "--no-hardlinks", repository, folder},
		{"-C", folder, "checkout", "--quiet", "--detach", s.commit},
		{"-C", folder, "tag", version},
	} {
		if _, err := output(ctx, ".", nil, "git", args...); err != nil {
			return s, err
		}
	}
	seconds, err := output(ctx, folder, nil, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return s, err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	s.time = time.Unix(unix, 0).UTC()
	return s, err
}

// versions are the files that state the version, and how.
var versions = map[string]string{
	"clients/world/package.json":      `"version": "%s"`,
	"deploy/helm/stepwell/Chart.yaml": "\nversion: %[1]s\nappVersion: %[1]s\n",
	"sdk/python/pyproject.toml":       `version = "%s"`,
	"sdk/stepwellotel/go.mod":         "stepwell/sdk v%s",
}

// checkVersions returns what states another version.
func (s source) checkVersions() (faults []error) {
	for file, line := range versions {
		want := fmt.Sprintf(line, s.number())
		text, err := os.ReadFile(s.path(file))
		if err == nil && !strings.Contains(string(text), want) {
			err = fmt.Errorf("%s does not say %s: change it there, and commit", file, want)
		}
		if err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

// output executes a command in a folder with additional variables, and returns what it prints.
func output(ctx context.Context, folder string, env []string, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	command.Dir, command.Env, command.Stdout, command.Stderr = folder, append(os.Environ(), env...), &stdout, &stderr
	err := command.Run()
	if err != nil {
		err = errors.Join(fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err),
			errors.New(strings.TrimSpace(stderr.String()+stdout.String())))
	}
	return strings.TrimSpace(stdout.String()), err
}
