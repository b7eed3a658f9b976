// Command release makes all that a release publishes, of the commit that is checked out and of nothing else, so that
// the same commit gives the same bytes. It needs Go, Node, and Python with setuptools, but no container daemon. It is a
// module of its own, so that Stepwell does not depend on what packs it.
//
//	release -version v0.1.0 -out ../dist    everything, with checksums
//	release -image ../bin/image.tar         only the image, for docker load
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
)

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	version := flag.String("version", "", "the version, such as v0.1.0")
	out := flag.String("out", "../dist", "the folder for what is made; it must not exist")
	image := flag.String("image", "", "write only the image of the working tree, to this file")
	arch := flag.String("arch", runtime.GOARCH, "the processor for -image")
	flag.Parse()
	var err error
	switch {
	case *image != "":
		err = writeImage(ctx, *arch, *image)
	default:
		err = writeRelease(ctx, *version, *out)
	}
	if err != nil {
		log.Print(err)
		os.Exit(1) //nolint:gocritic // the signal needs no care any more
	}
}

// writeRelease makes a release in the folder out.
func writeRelease(ctx context.Context, version, out string) error {
	work, err := os.MkdirTemp("", "stepwell-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.Mkdir(out, 0o755); err != nil {
		return fmt.Errorf("%w: remove the folder first", err)
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	s, err := checkOut(ctx, "..", version, filepath.Join(work, "source"))
	if err != nil {
		return err
	}
	if err := errors.Join(s.checkVersions()...); err != nil {
		return err
	}
	r := release{source: s, out: out, work: work}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"binaries", r.binaries},
		{"licences", r.licences},
		{"manual and completions", r.texts},
		{"archives", r.archives},
		{"software bills of materials", r.bills},
		{"packages", r.packages},
		{"image", r.image},
		{"npm package", r.npm},
		{"Python package", r.python},
		{"tags of modules", r.tags},
		{"checksums", r.checksums},
	} {
		log.Print(step.name)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// release makes the files of a release, step by step.
type release struct {
	source
	// out gets what is published.
	out string
	// work has a folder for each target with what is packed for it.
	work string
}

// file is the path of a file that is published. Its name begins with the program's and the version.
func (r release) file(suffix string) string {
	return filepath.Join(r.out, "stepwell_"+r.number()+suffix)
}

// stage is the folder with what is packed for a target.
func (r release) stage(t target) string { return filepath.Join(r.work, t.os+"_"+t.arch) }
