package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/html"
)

const repository = ".."

// made is a site with two releases and what is not released, whose folder TestMain removes.
var made = sync.OnceValues(func() (string, error) {
	for _, version := range []string{"v0.1.0", "v0.2.0", "", "v0.1.1"} {
		if err := run(repository, folder, version, "https://example.com/stepwell/"); err != nil {
			return "", err
		}
	}
	return folder, nil
})

var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "stepwell-site-"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(folder); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// document is an HTML file of the site: one that all versions share, or a page of the next.
type document struct {
	name  string // from the site's folder
	text  []byte
	nodes []*html.Node // its elements
	ids   map[string]bool
}

var documents = sync.OnceValues(func() (map[string]document, error) {
	folder, err := made()
	if err != nil {
		return nil, err
	}
	all := map[string]document{}
	return all, filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if _, is := releaseOf(entry.Name()); is || entry.Name() == latest {
			return fs.SkipDir // made as the next one is
		}
		if err != nil || filepath.Ext(file) != ".html" {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		root, err := html.Parse(bytes.NewReader(text))
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, file)
		d := document{name: filepath.ToSlash(name), text: text, ids: map[string]bool{}}
		for n := range root.Descendants() {
			if n.Type == html.ElementNode {
				d.nodes = append(d.nodes, n)
				d.ids[attribute(n, "id")] = true
			}
		}
		all[d.name] = d
		return err
	})
})

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// pages are those of the next version.
func pages(t *testing.T) map[string]document {
	t.Helper()
	all, err := documents()
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]document{}
	for name, d := range all {
		if strings.HasPrefix(name, "next/") {
			pages[name] = d
		}
	}
	if len(pages) < 50 {
		t.Fatalf("the site has %d pages", len(pages))
	}
	return pages
}

// TestEveryLinkLeadsSomewhere follows all links of all pages within the site, with their anchors. Nothing but links leads
// to another host.
func TestEveryLinkLeadsSomewhere(t *testing.T) {
	t.Parallel()
	all, err := documents()
	if err != nil {
		t.Fatal(err)
	}
	links, anchors := 0, 0
	for _, d := range all {
		for _, n := range d.nodes {
			for _, key := range []string{"href", "src"} {
				link := attribute(n, key)
				if link == "" {
					continue
				}
				u, err := url.Parse(link)
				if err != nil {
					t.Errorf("%s: %v", d.name, err)
					continue
				}
				if u.Scheme != "" {
					if n.Data != "a" && attribute(n, "rel") != "canonical" {
						t.Errorf("%s loads %s", d.name, link)
					}
					continue
				}
				links++
				target := path.Join(path.Dir(d.name), u.Path)
				if below, absolute := strings.CutPrefix(u.Path, "/stepwell/"); absolute {
					target = below
				} else if u.Path == "" {
					target = d.name
				}
				if _, err := os.Stat(filepath.Join(folder, target)); err != nil {
					t.Errorf("%s links to %s: %v", d.name, link, err)
				}
				if u.Fragment != "" && path.Ext(target) == ".html" {
					if anchors++; !all[target].ids[u.Fragment] {
						t.Errorf("%s links to %s, which has no such anchor", d.name, link)
					}
				}
			}
		}
	}
	if links < 4000 || anchors < 1000 {
		t.Errorf("found only %d links and %d anchors", links, anchors)
	}
}

// TestNoPageIsAlone: every page of docs has its place in docs/README.md, every page of the site can be reached from the
// first one by the text of pages, and is in the navigation of all.
func TestNoPageIsAlone(t *testing.T) {
	t.Parallel()
	b, err := readBook(repository, release{})
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(b.files, "docs", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".md" && b.pages[name] == nil {
			t.Errorf("no page links to %s", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pages := pages(t)
	if len(pages) != len(b.order) {
		t.Errorf("the site has %d pages, and the book %d", len(pages), len(b.order))
	}
	for name, d := range pages {
		var listed []string
		for _, n := range d.nodes {
			if n.Data == "a" && n.Parent.Data == "li" && n.Parent.Parent.Parent.Data == "nav" {
				listed = append(listed, path.Join(path.Dir(name), attribute(n, "href")))
			}
		}
		var want []string
		for _, p := range b.order {
			want = append(want, "next/"+p.target)
		}
		if !slices.Equal(listed, want) {
			t.Errorf("the navigation of %s is\n%v, want\n%v", name, listed, want)
		}
	}
}

// TestNavigationIsTheIndex: sections and their order are those of docs/README.md.
func TestNavigationIsTheIndex(t *testing.T) {
	t.Parallel()
	b, err := readBook(repository, release{})
	if err != nil {
		t.Fatal(err)
	}
	var sections []string
	for _, s := range b.sections {
		sections = append(sections, s.Title)
	}
	text, err := fs.ReadFile(b.files, index)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{""}
	for _, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllSubmatch(text, -1) {
		want = append(want, string(m[1]))
	}
	if want = append(want, "More"); !slices.Equal(sections, want) {
		t.Errorf("got %q, want %q", sections, want)
	}
	if learn := b.sections[1].Pages; learn[0].source != "docs/tutorial.md" || learn[0].Label != "Tutorial" {
		t.Errorf("the first page is %q of %s", learn[0].Label, learn[0].source)
	}
}

// TestPagesAreValid checks what the standard asks of a document, and that the content security policy permits all of it.
func TestPagesAreValid(t *testing.T) {
	t.Parallel()
	all, err := documents()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		for _, fault := range append(unbalanced(d.text), misused(d)...) {
			t.Errorf("%s: %s", d.name, fault)
		}
	}
}

var (
	void   = []string{"meta", "link", "img", "input", "br", "hr"}
	blocks = []string{"p", "pre", "ul", "ol", "table", "div", "figure", "h1", "h2", "h3", "h4", "details", "blockquote"}
)

// unbalanced compares begin and end tags, which a browser would set right in silence.
func unbalanced(text []byte) []string {
	var faults, open []string
	tokens := html.NewTokenizer(bytes.NewReader(text))
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			if len(open) > 0 {
				faults = append(faults, "not closed: "+strings.Join(open, " "))
			}
			return faults
		case html.StartTagToken:
			name, _ := tokens.TagName()
			tag := string(name)
			if slices.Contains(blocks, tag) && slices.Contains(open, "p") {
				faults = append(faults, "a paragraph has "+tag)
			}
			if !slices.Contains(void, tag) {
				open = append(open, tag)
			}
		case html.TextToken, html.SelfClosingTagToken, html.CommentToken, html.DoctypeToken:
		case html.EndTagToken:
			name, _ := tokens.TagName()
			if len(open) == 0 || open[len(open)-1] != string(name) {
				return append(faults, "</"+string(name)+"> in "+strings.Join(open, " "))
			}
			open = open[:len(open)-1]
		}
	}
}

// misused finds attributes and elements that are missing, doubled or against the policy.
func misused(d document) []string {
	var faults []string
	seen := map[string]int{}
	for _, n := range d.nodes {
		seen["<"+n.Data+">"]++
		if id := attribute(n, "id"); id != "" {
			if seen[id]++; seen[id] > 1 {
				faults = append(faults, "the ID "+id+" is there twice")
			}
		}
		for _, a := range n.Attr {
			if a.Key == "style" || strings.HasPrefix(a.Key, "on") {
				faults = append(faults, "the policy forbids "+a.Key)
			}
		}
		hasAlt := slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "alt" })
		if n.Data == "img" && !hasAlt || n.Data == "script" && n.FirstChild != nil || n.Data == "style" {
			faults = append(faults, "a wrong "+n.Data)
		}
	}
	for _, once := range []string{"<title>", "<h1>", "<main>"} {
		if seen[once] != 1 && d.name != "index.html" {
			faults = append(faults, once+" is there other than once")
		}
	}
	if !bytes.HasPrefix(d.text, []byte("<!doctype html>\n<html lang=\"en\"")) || !bytes.Contains(d.text, []byte("Content-Security-Policy")) {
		faults = append(faults, "the beginning is wrong")
	}
	return faults
}

// TestVersionsStandBesideEachOther: a version that is added leaves the others alone, and latest is the newest release.
func TestVersionsStandBesideEachOther(t *testing.T) {
	t.Parallel()
	folder, err := made()
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"versions.js":              `siteVersions = ["v0.2","v0.1","next"];`,
		"index.html":               `url=latest/index.html`,
		"versions.html":            `<a href="v0.1/index.html">`,
		"latest/index.html":        `data-version="v0.2"`,
		"v0.2/index.html":          `href="https://github.com/stepwell-dev/stepwell/tree/v0.2.0/e2e"`,
		"v0.1/tutorial.html":       `href="https://github.com/stepwell-dev/stepwell/blob/v0.1.1/docs/tutorial.md"`,
		"next/tutorial.html":       `href="https://github.com/stepwell-dev/stepwell/blob/main/docs/tutorial.md"`,
		"next/examples/order.html": `<link rel="canonical" href="https://example.com/stepwell/latest/examples/order.html">`,
		"sitemap.xml":              `<loc>https://example.com/stepwell/latest/tutorial.html</loc>`,
		"robots.txt":               `Sitemap: https://example.com/stepwell/sitemap.xml`,
		"llms.txt":                 `(https://example.com/stepwell/v0.2/tutorial.html)`,
		"404.html":                 `href="/stepwell/latest/style.css"`,
	} {
		text, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			t.Error(err)
		} else if !strings.Contains(strings.ReplaceAll(string(text), "0; url", "url"), want) {
			t.Errorf("%s has no %s", file, want)
		}
	}
}

// TestFilesForModels: llms.txt has a link to each page of the index, and llms-full.txt the text of all.
func TestFilesForModels(t *testing.T) {
	t.Parallel()
	folder, err := made()
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile(filepath.Join(folder, "next", "llms.txt"))
	if err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`\]\(https://example\.com/stepwell/next/([^)#]+)`).FindAllSubmatch(list, -1)
	for _, m := range links {
		if _, err := os.Stat(filepath.Join(folder, "next", string(m[1]))); err != nil {
			t.Error(err)
		}
	}
	if len(links) < 30 || strings.Contains(string(list), ".md)") {
		t.Errorf("%d links lead to pages:\n%s", len(links), list)
	}
	full, err := os.ReadFile(filepath.Join(folder, "next", "llms-full.txt"))
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, filepath.Join(repository, home)) {
		if text, err := os.ReadFile(name); err != nil || !bytes.Contains(full, text) {
			t.Errorf("llms-full.txt has no %s, %v", name, err)
		}
	}
}

// TestSearchIndexHasAllText: each part of a page is there with its address.
func TestSearchIndexHasAllText(t *testing.T) {
	t.Parallel()
	pages := pages(t)
	text, err := os.ReadFile(filepath.Join(folder, "next", "search-index.js"))
	if err != nil {
		t.Fatal(err)
	}
	var parts []found
	if err := json.Unmarshal(bytes.TrimPrefix(text, []byte("searchIndex = ")), &parts); err != nil {
		t.Fatal(err)
	}
	if len(parts) < 500 {
		t.Errorf("the index has only %d parts", len(parts))
	}
	all := map[string]string{}
	for _, p := range parts {
		page, anchor, _ := strings.Cut(p.Link, "#")
		if d, ok := pages["next/"+page]; !ok || anchor != "" && !d.ids[anchor] {
			t.Errorf("%s leads nowhere", p.Link)
		}
		all[p.Link] = p.Text
	}
	for link, want := range map[string]string{
		"configuration.html#the-server":     "STEPWELL_LISTEN",                       // in a table
		"tutorial.html#6-count":             "the card is already charged",           // in a block of code
		"index.html":                        "keeps every run as an append-only log", // in a paragraph
		"releases.html#how-it-is-published": "pushes the tag",                        // in a list
	} {
		if !strings.Contains(all[link], want) {
			t.Errorf("%s is without %q: %s", link, want, all[link])
		}
	}
}

func TestSlugsAreThoseOfTheForge(t *testing.T) {
	t.Parallel()
	for heading, want := range map[string]string{
		"1. Build the server":           "1-build-the-server",
		"PUT /v1/deployments/{id}":      "put-v1deploymentsid",
		"What `kill -9` does & doesn't": "what-kill--9-does--doesnt",
		"Ärger_mit Straßen":             "ärger_mit-straßen",
	} {
		if got := slug(strings.ReplaceAll(heading, "`", "")); got != want {
			t.Errorf("%s: got %s, want %s", heading, got, want)
		}
	}
}

func TestWrongVersionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.1.0", "v0.1", "v0.1.0-rc.1", "../v0.1.0", "latest"} {
		if err := run(repository, t.TempDir(), version, "https://example.com/"); err == nil {
			t.Errorf("%q is no version", version)
		}
	}
}

// TestWrongPagesAreRefused: the site is not made of pages with links that lead nowhere.
func TestWrongPagesAreRefused(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]string{
		"# A\n\n[b](a.md#a) [c](#a)\n": "",
		"# A\n\n[b](b.md)\n":           "docs/a.md links to b.md: stat docs/b.md: no such file or directory",
		"# A\n\n[b](#b)\n":             "docs/a.md links to #b, and there is no such heading",
		"# A\n\n![b](b.png)\n":         "docs/a.md shows b.png: stat docs/b.png: no such file or directory",
		"# A\n\n<p>b</p>\n":            "HTML in a page: <p>b</p>",
		"b\n":                          "docs/a.md does not begin with a heading",
	} {
		folder := t.TempDir()
		if err := os.Mkdir(filepath.Join(folder, "docs"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{home: "# Home\n", index: "# Index\n\n## All\n\n| a |\n|---|\n| [a](a.md) |\n", "docs/a.md": page} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b, err := readBook(folder, release{})
		if err == nil {
			_, err = b.render(b.pages["docs/a.md"])
		}
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && got != want {
			t.Errorf("%q: got %s, want %s", page, got, want)
		}
	}
}
