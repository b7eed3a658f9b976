package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// release is the version that a book is of; without a tag, the next one.
type release struct {
	tag          string
	major, minor int
}

func parseRelease(tag string) (release, error) {
	if tag == "" {
		return release{}, nil
	}
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+$`).MatchString(tag) {
		return release{}, fmt.Errorf("the version %q is none like v0.1.0", tag)
	}
	r, _ := releaseOf(tag[:strings.LastIndexByte(tag, '.')])
	r.tag = tag
	return r, nil
}

// releaseOf returns the release whose folder has the name. Patches have the folder of their minor version.
func releaseOf(folder string) (release, bool) {
	m := regexp.MustCompile(`^v(\d+)\.(\d+)$`).FindStringSubmatch(folder)
	if m == nil {
		return release{}, false
	}
	major, majorErr := strconv.Atoi(m[1])
	minor, minorErr := strconv.Atoi(m[2])
	return release{major: major, minor: minor, tag: folder + ".0"}, majorErr == nil && minorErr == nil
}

// ref is what has the release at the forge.
func (r release) ref() string { return cmp.Or(r.tag, "main") }

// folder is the folder of the version, and its name.
func (r release) folder() string {
	if r.tag == "" {
		return "next"
	}
	return fmt.Sprintf("v%d.%d", r.major, r.minor)
}

// newestFirst sorts the folders of versions; next is the last.
func newestFirst(folders []string) {
	slices.SortFunc(folders, func(x, y string) int {
		a, _ := releaseOf(x)
		b, _ := releaseOf(y)
		return cmp.Or(cmp.Compare(b.major, a.major), cmp.Compare(b.minor, a.minor))
	})
}
