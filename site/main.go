// Command site makes the documentation site: static HTML of README.md, of the pages in docs, and of what they link to.
// It needs no other program, and the pages need no other host. Each version has a folder; see docs/releases.md.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	repository := flag.String("repository", "..", "the `folder` of the repository")
	out := flag.String("out", "../bin/site", "the `folder` of the site, which may have other versions")
	version := flag.String("version", "", "the release that the repository is, such as `v0.1.0`; next by default")
	url := flag.String("url", "https://stepwell-dev.github.io/stepwell/", "where the site will be")
	flag.Parse()
	if err := run(*repository, *out, *version, *url); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// run adds a version to the site, and writes anew what all versions share.
func run(repository, out, version, url string) error {
	release, err := parseRelease(version)
	if err != nil {
		return err
	}
	b, err := readBook(repository, release)
	if err != nil {
		return err
	}
	s, err := openSite(out, url, release)
	if err != nil {
		return err
	}
	if err := s.writeVersion(b); err != nil {
		return err
	}
	return s.writeShared()
}
