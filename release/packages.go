package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// packages makes those for Debian and Red Hat.
func (r release) packages(ctx context.Context) error {
	nfpm, err := output(ctx, ".", nil, "go", "tool", "-n", "nfpm")
	if err != nil {
		return err
	}
	for _, t := range targets {
		if t.os != "linux" {
			continue
		}
		if err := zipManual(r.stage(t)); err != nil {
			return err
		}
		if err := r.setTimes(r.stage(t)); err != nil {
			return err
		}
		config := r.path("release/nfpm.yaml")
		env := []string{"ARCH=" + t.arch, "VERSION=" + r.number(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.time.Unix())}
		for _, kind := range []string{"deb", "rpm"} {
			file := r.file("_linux_" + t.arch + "." + kind)
			if _, err := output(ctx, r.stage(t), env, nfpm, "package", "-f", config, "-p", kind, "-t", file); err != nil {
				return err
			}
		}
	}
	return nil
}

// zipManual compresses the manual page, as the distributions have it.
func zipManual(folder string) error {
	page, err := os.ReadFile(filepath.Join(folder, "stepwell.1"))
	if err != nil {
		return err
	}
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(page); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "stepwell.1.gz"), zipped.Bytes(), 0o644)
}

// setTimes gives all in a folder the time of the commit.
func (r release) setTimes(folder string) error {
	return filepath.WalkDir(folder, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(name, r.time, r.time)
	})
}
