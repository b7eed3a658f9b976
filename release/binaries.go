package main

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// target is a platform that a binary is for.
type target struct{ os, arch string }

var targets = []target{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// env makes the Go command build for the target, whatever else the environment says.
func (t target) env() []string {
	return []string{
		"GOOS=" + t.os, "GOARCH=" + t.arch, "GOAMD64=v1", "GOARM64=v8.0", "CGO_ENABLED=0", "GOEXPERIMENT=", "GOWORK=off",
		"GOFLAGS=-tags=timetzdata", // conditions of signals may name time zones, and the image has no database of them
	}
}

// build builds the server. The binary has in it what it was built from: `stepwell version` prints it.
func build(ctx context.Context, folder string, t target, out string) error {
	_, err := output(ctx, folder, t.env(), "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w",
		"-o", out, "./cmd/stepwell")
	return err
}

func (r release) binaries(ctx context.Context) error {
	for _, t := range targets {
		if err := build(ctx, r.folder, t, filepath.Join(r.stage(t), "stepwell")); err != nil {
			return err
		}
	}
	return nil
}

// texts puts into the folder of each target what goes with the binary: by the binary of this machine, the manual page
// and the completions.
func (r release) texts(ctx context.Context) error {
	own := filepath.Join(r.stage(target{runtime.GOOS, runtime.GOARCH}), "stepwell")
	made := map[string]string{}
	for name, command := range map[string]string{
		"stepwell.1": "man", "completions/stepwell.bash": "completion bash",
		"completions/_stepwell": "completion zsh", "completions/stepwell.fish": "completion fish",
	} {
		text, err := output(ctx, ".", nil, own, strings.Fields(command)...)
		if err != nil {
			return err
		}
		made[name] = text + "\n"
	}
	for _, name := range []string{"LICENSE", "deploy/systemd/stepwell.service", "deploy/systemd/stepwell.env"} {
		text, err := os.ReadFile(r.path(name))
		if err != nil {
			return err
		}
		made[filepath.Base(name)] = string(text)
	}
	for _, t := range targets {
		if err := writeAll(r.stage(t), made); err != nil {
			return err
		}
	}
	return nil
}

// writeAll writes files below a folder.
func writeAll(folder string, files map[string]string) error {
	for name, text := range files {
		name = filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// archives packs each target.
func (r release) archives(context.Context) error {
	for _, t := range targets {
		var list []entry
		for _, name := range []string{
			"LICENSE", "THIRD_PARTY_LICENSES", "completions/_stepwell", "completions/stepwell.bash", "completions/stepwell.fish",
			"stepwell", "stepwell.1",
		} {
			list = append(list, entry{name: name, file: filepath.Join(r.stage(t), name)})
		}
		if err := r.pack(r.file("_"+t.os+"_"+t.arch+".tar.gz"), list); err != nil {
			return err
		}
	}
	return nil
}

// pack writes a compressed tar file.
func (r release) pack(name string, list []entry) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	zipped := gzip.NewWriter(f)
	if err := writeTar(zipped, list, r.time); err != nil {
		return err
	}
	if err := zipped.Close(); err != nil {
		return err
	}
	return f.Close()
}

// checksums writes the hashes of all files, for `sha256sum --check`.
func (r release) checksums(context.Context) error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, f := range files {
		sum, err := hash(filepath.Join(r.out, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sum, f.Name())
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// hash returns the SHA-256 of a file.
func hash(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}
