package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

//go:embed theme
var theme embed.FS

var templates = template.Must(template.ParseFS(theme, "theme/*.html"))

// latest is the folder of the newest release's pages, whichever it is.
const latest = "latest"

// site is a folder with versions.
type site struct {
	out      string
	url      *url.URL // ends with a slash
	release  release  // the one that is added
	versions []string // folders: the newest release first, next last
}

func openSite(out, address string, r release) (*site, error) {
	u, err := url.Parse(strings.TrimSuffix(address, "/") + "/")
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%q is no URL of a site: %w", address, err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(out)
	if err != nil {
		return nil, err
	}
	s := &site{out: out, url: u, release: r, versions: []string{r.folder()}}
	for _, e := range entries {
		if _, is := releaseOf(e.Name()); (is || e.Name() == "next") && e.Name() != r.folder() {
			s.versions = append(s.versions, e.Name())
		}
	}
	newestFirst(s.versions)
	return s, nil
}

// first is the folder that a reader gets who names none.
func (s *site) first() string {
	if s.versions[0] == "next" {
		return "next"
	}
	return latest
}

// folders are those that the version is written to.
func (s *site) folders() []string {
	if s.release.tag != "" && s.versions[0] == s.release.folder() {
		return []string{s.release.folder(), latest}
	}
	return []string{s.release.folder()}
}

// writeVersion replaces a version when all of it could be made.
func (s *site) writeVersion(b *book) error {
	files, err := s.filesOf(b)
	if err != nil {
		return err
	}
	for _, folder := range s.folders() {
		if err := os.RemoveAll(filepath.Join(s.out, folder)); err != nil {
			return err
		}
		for name, data := range files {
			if err := s.writeFile(filepath.Join(folder, name), data); err != nil {
				return err
			}
		}
	}
	return nil
}

// filesOf are all files of a version: pages, and what they need.
func (s *site) filesOf(b *book) (map[string][]byte, error) {
	files := map[string][]byte{}
	var err error
	for i, p := range b.order {
		if files[p.target], err = s.page(b, i); err != nil {
			return nil, err
		}
	}
	b.copies["ui/src/icon.svg"] = "icon.svg"
	for from, to := range b.copies {
		if files[to], err = fs.ReadFile(b.files, from); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"style.css", "site.js"} {
		if files[name], err = theme.ReadFile("theme/" + name); err != nil {
			return nil, err
		}
	}
	if files["search-index.js"], err = searchIndex(b); err != nil {
		return nil, err
	}
	if files["llms.txt"], err = s.llms(b); err != nil {
		return nil, err
	}
	files["llms-full.txt"] = llmsFull(b)
	return files, nil
}

// writeFile writes a file of the site.
func (s *site) writeFile(name string, data []byte) error {
	name = filepath.Join(s.out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}

// view is what the template of a page has.
type view struct {
	*page
	Home              bool
	Root              string // from the page to the version's folder
	Version           string
	Description       string
	Canonical, Source string
	Body              template.HTML
	Contents          []entry
	Sections          []section
	Previous, Next    *page
}

// entry is a heading in the contents of a page.
type entry struct {
	Level    int
	ID, Text string
}

// page is the HTML of a page.
func (s *site) page(b *book, i int) ([]byte, error) {
	p := b.order[i]
	contents := contentsOf(p)
	body, err := b.render(p)
	if err != nil {
		return nil, err
	}
	v := view{
		page: p, Home: p.source == home, Root: strings.Repeat("../", strings.Count(p.target, "/")),
		Version: s.release.folder(), Description: description(p), Canonical: s.url.String() + s.first() + "/" + p.target,
		Source: forge + "blob/" + b.release.ref() + "/" + p.source,
		Body:   template.HTML(body), Contents: contents, Sections: b.sections,
	}
	if i > 0 {
		v.Previous = b.order[i-1]
	}
	if i+1 < len(b.order) {
		v.Next = b.order[i+1]
	}
	var out bytes.Buffer
	err = templates.ExecuteTemplate(&out, "page.html", v)
	return out.Bytes(), err
}

// To is the path of a page from another.
func (v view) To(p *page) string { return v.Root + p.target }

// Is reports whether a page is this one.
func (v view) Is(p *page) bool { return v.page == p }

// contentsOf are the headings of a page; of a long one, those of the second level only.
func contentsOf(p *page) []entry {
	const long = 40
	var all, short []entry
	for h := range headings(p.doc) {
		e := entry{h.Level, idOf(h), p.plain(h)}
		if h.Level == 2 {
			short = append(short, e)
		}
		if h.Level == 2 || h.Level == 3 {
			all = append(all, e)
		}
	}
	if len(all) > long {
		return short
	}
	return all
}

// description is the beginning of the first paragraph.
func description(p *page) string {
	const limit = 200
	for n := p.doc.FirstChild(); n != nil; n = n.NextSibling() {
		if n.Kind().String() != "Paragraph" {
			continue
		}
		text := []rune(p.plain(n))
		if len(text) > limit {
			text = append(text[:limit], '…')
		}
		return string(text)
	}
	return p.Title
}

// writeShared writes what is beside the versions.
func (s *site) writeShared() error {
	versions, err := json.Marshal(s.versions)
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"versions.js": fmt.Appendf(nil, "siteVersions = %s;\n", versions),
		"robots.txt":  fmt.Appendf(nil, "User-agent: *\nAllow: /\nSitemap: %ssitemap.xml\n", s.url),
	}
	for _, name := range []string{"index.html", "404.html", "versions.html"} {
		var out bytes.Buffer
		err := templates.ExecuteTemplate(&out, "shared-"+name, map[string]any{
			"Versions": s.versions, "First": s.first(), "Base": s.url.Path, "URL": s.url.String(),
		})
		if err != nil {
			return err
		}
		files[name] = out.Bytes()
	}
	for _, name := range []string{"llms.txt", "llms-full.txt"} {
		if files[name], err = os.ReadFile(filepath.Join(s.out, s.first(), name)); err != nil {
			return err
		}
	}
	if files["sitemap.xml"], err = s.sitemap(); err != nil {
		return err
	}
	for name, data := range files {
		if err := s.writeFile(name, data); err != nil {
			return err
		}
	}
	return nil
}
