package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// npm packs the package for apps of the Workflow SDK.
func (r release) npm(ctx context.Context) error {
	_, err := output(ctx, r.path("clients/world"), nil, "npm", "pack", "--pack-destination", r.out)
	return err
}

// makePython has the build backend that pyproject.toml names make both packages, as `python3 -m build` would without a
// build environment of its own.
const makePython = `
import os, sys
from setuptools import build_meta
os.umask(0o022)
out = sys.argv[1] # which the builds change
build_meta.build_wheel(out)
build_meta.build_sdist(out)`

// python makes the wheel and the source package.
func (r release) python(ctx context.Context) error {
	python, err := findPython(ctx)
	if err != nil {
		return err
	}
	folder := r.path("sdk/python")
	env := []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.time.Unix()), "PYTHONHASHSEED=0"}
	if _, err := output(ctx, folder, env, python, "-c", makePython, r.out); err != nil {
		return err
	}
	return r.repack(filepath.Join(r.out, "stepwell-"+r.number()+".tar.gz"))
}

// findPython returns a Python that has setuptools, and wheel or a setuptools that has it in it.
func findPython(ctx context.Context) (string, error) {
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		_, err := output(ctx, ".", nil, python, "-c", "from setuptools.command.bdist_wheel import bdist_wheel")
		if err != nil {
			_, err = output(ctx, ".", nil, python, "-c", "import setuptools, wheel.bdist_wheel")
		}
		if err == nil {
			return python, nil
		}
	}
	return "", errors.New("python3 has no setuptools and wheel: apt-get install python3-setuptools python3-wheel")
}

// repack rewrites a compressed tar file without what the machine added: owners, times, the order.
func (r release) repack(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	folder := filepath.Join(r.work, "sdist")
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		var text strings.Builder
		if _, err := io.Copy(&text, archive); err != nil {
			return err
		}
		if err := writeAll(folder, map[string]string{header.Name: text.String()}); err != nil {
			return err
		}
	}
	list, err := below(folder)
	if err != nil {
		return err
	}
	return r.pack(name, list)
}

// modules are the folders of the Go modules that others may use; empty for the root.
var modules = []string{"", "sdk", "sdk/stepwellotel", "sdk/vet"}

// tags lists the tags that publish the Go modules.
func (r release) tags(context.Context) error {
	var list strings.Builder
	for _, folder := range modules {
		if folder != "" {
			folder += "/"
		}
		fmt.Fprintln(&list, folder+r.version)
	}
	return os.WriteFile(r.file("_go_tags.txt"), []byte(list.String()), 0o644)
}
