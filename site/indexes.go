package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

// found is a part of a page that the search can find: what is below a heading.
type found struct {
	Title   string `json:"t"`
	Heading string `json:"h,omitempty"` // but the page's
	Link    string `json:"u"`
	Text    string `json:"x"`
}

// searchIndex is a script with the text of all pages, which the browser loads when somebody searches.
func searchIndex(b *book) ([]byte, error) {
	var all []found
	for _, p := range b.order {
		all = append(all, p.parts()...)
	}
	var out bytes.Buffer
	out.WriteString("searchIndex = ")
	to := json.NewEncoder(&out)
	to.SetEscapeHTML(false)
	err := to.Encode(all)
	return out.Bytes(), err
}

// parts are the parts of a page, each with the text below its heading.
func (p *page) parts() []found {
	var parts []found
	for n := p.doc.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok {
			part := found{Title: p.Title, Heading: p.plain(h), Link: p.target + "#" + idOf(h)}
			if h.Level == 1 {
				part.Heading, part.Link = "", p.target
			}
			parts = append(parts, part)
			continue
		}
		last := &parts[len(parts)-1]
		last.Text = strings.TrimSpace(last.Text + " " + strings.Join(strings.Fields(p.plain(n)), " "))
	}
	return parts
}

// llms is docs/llms.txt with links to the pages of the site.
func (s *site) llms(b *book) ([]byte, error) {
	data, err := fs.ReadFile(b.files, "docs/llms.txt")
	if err != nil {
		return nil, err
	}
	doc := markdown.Parser().Parse(text.NewReader(data))
	list := &page{source: "docs/llms.txt", target: "llms.txt", text: data, doc: doc}
	address := s.url.String() + s.release.folder() + "/"
	out := string(data)
	for _, link := range list.links() {
		to, err := b.href(list, link)
		if err != nil {
			return nil, err
		}
		if !strings.Contains(to, ":") {
			to = address + to
		}
		out = strings.ReplaceAll(out, "]("+link+")", "]("+to+")")
	}
	return []byte(strings.Replace(out, "`make llms` writes all pages into one file, bin/llms-full.txt.",
		"All pages in one file: "+address+"llms-full.txt", 1)), nil
}

// llmsFull is all pages of the documentation as they are written, as `make llms` has them.
func llmsFull(b *book) []byte {
	names := []string{home}
	for source := range b.pages {
		if strings.HasPrefix(source, "docs/") {
			names = append(names, source)
		}
	}
	slices.Sort(names[1:])
	var out bytes.Buffer
	for _, name := range names {
		out.Write(b.pages[name].text)
	}
	return out.Bytes()
}

// sitemap lists the pages of the newest release, or of the next one before there is any.
func (s *site) sitemap() ([]byte, error) {
	type location struct {
		Loc string `xml:"loc"`
	}
	var set struct {
		XMLName xml.Name   `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 urlset"`
		URLs    []location `xml:"url"`
	}
	folder := filepath.Join(s.out, s.first())
	err := filepath.WalkDir(folder, func(name string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(name) == ".html" {
			var rel string
			rel, err = filepath.Rel(s.out, name)
			set.URLs = append(set.URLs, location{s.url.String() + filepath.ToSlash(rel)})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out, err := xml.MarshalIndent(set, "", " ")
	return append([]byte(xml.Header), append(out, '\n')...), err
}
