package main

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/yuin/goldmark/ast"
)

// setIDs gives the headings the anchors that they have on GitHub, which the links in the repository name.
func setIDs(p *page) {
	used := map[string]int{}
	for n := range headings(p.doc) {
		id := slug(p.plain(n))
		used[id]++
		if again := used[id] - 1; again > 0 {
			id = fmt.Sprintf("%s-%d", id, again)
		}
		n.SetAttributeString("id", []byte(id))
	}
}

// slug is the anchor of a heading: letters and digits in lower case, and hyphens for spaces.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// headings are the headings of a document.
func headings(doc ast.Node) func(yield func(*ast.Heading) bool) {
	return func(yield func(*ast.Heading) bool) {
		for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
			if h, ok := n.(*ast.Heading); ok && !yield(h) {
				return
			}
		}
	}
}

func idOf(h *ast.Heading) string {
	id, _ := h.AttributeString("id")
	return string(id.([]byte))
}

// href is where a link in a source leads to on the site, as seen from the folder that the link's page is in: a page, a
// picture, or a file at the forge.
func (b *book) href(from *page, link string) (string, error) {
	if strings.Contains(link, ":") {
		return link, nil
	}
	if source, fragment, ok := b.pageAt(from.source, link); ok && b.pages[source] != nil {
		if fragment != "" && !b.pages[source].has(fragment) {
			return "", fmt.Errorf("%s links to %s, and there is no such heading", from.source, link)
		}
		return withFragment(relative(from, b.pages[source].target, source == from.source && fragment != ""), fragment), nil
	}
	file, fragment, _ := strings.Cut(link, "#")
	file = path.Join(path.Dir(from.source), file)
	info, err := fs.Stat(b.files, file)
	if err != nil {
		return "", fmt.Errorf("%s links to %s: %w", from.source, link, err)
	}
	kind := "blob/"
	if info.IsDir() {
		kind = "tree/"
	}
	return withFragment(forge+kind+b.release.ref()+"/"+file, fragment), nil
}

// relative is the path from a page to a file of the version's folder; empty if it is the same page.
func relative(from *page, target string, same bool) string {
	if same {
		return ""
	}
	rel, err := filepath.Rel(path.Dir(from.target), target)
	if err != nil {
		panic(err) // both are relative
	}
	return filepath.ToSlash(rel)
}

func withFragment(link, fragment string) string {
	if fragment == "" {
		return link
	}
	return link + "#" + fragment
}

// has reports whether the page has an anchor.
func (p *page) has(anchor string) bool {
	for h := range headings(p.doc) {
		if idOf(h) == anchor {
			return true
		}
	}
	return false
}

// image is where a picture is on the site. Those of docs are copied.
func (b *book) image(from *page, link string) (string, error) {
	source := path.Join(path.Dir(from.source), link)
	if _, err := fs.Stat(b.files, source); err != nil {
		return "", fmt.Errorf("%s shows %s: %w", from.source, link, err)
	}
	b.copies[source] = strings.TrimPrefix(source, "docs/")
	return relative(from, b.copies[source], false), nil
}
