package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// Where the site begins, and what says the order of its pages.
const (
	home  = "README.md"
	index = "docs/README.md"
)

const forge = "https://github.com/stepwell-dev/stepwell/"

// book is all pages of a version.
type book struct {
	files    fs.FS
	release  release
	pages    map[string]*page // by source
	order    []*page          // as in the navigation
	sections []section
	copies   map[string]string // where files go that are copied, by where they come from
}

// section is a part of the navigation.
type section struct {
	Title string
	Pages []*page
}

// page is a Markdown file, and a page of the site.
type page struct {
	source, target string // paths from the repository, and from the version's folder
	Label          string // in the navigation
	Title          string // its first heading
	text           []byte
	doc            ast.Node
}

// readBook reads README.md and all pages that can be reached from it by links.
func readBook(repository string, r release) (*book, error) {
	b := &book{files: os.DirFS(repository), release: r, pages: map[string]*page{}, copies: map[string]string{}}
	first, err := b.read(home)
	if err != nil {
		return nil, err
	}
	first.Title, first.Label = "Home", "Home"
	contents, err := b.read(index)
	if err != nil {
		return nil, err
	}
	contents.Label = "All pages"
	b.sections = []section{{"", []*page{first, contents}}}
	b.order = b.sections[0].Pages
	if err := b.readSections(contents); err != nil {
		return nil, err
	}
	return b, b.readOthers()
}

// read reads a page.
func (b *book) read(source string) (*page, error) {
	data, err := fs.ReadFile(b.files, source)
	if err != nil {
		return nil, err
	}
	p := &page{source: source, target: targetOf(source), text: data, doc: markdown.Parser().Parse(text.NewReader(data))}
	for _, other := range b.pages {
		if other.target == p.target {
			return nil, fmt.Errorf("%s and %s are both %s", source, other.source, p.target)
		}
	}
	heading, ok := p.doc.FirstChild().(*ast.Heading)
	if !ok || heading.Level != 1 {
		return nil, fmt.Errorf("%s does not begin with a heading", source)
	}
	p.Title = p.plain(heading)
	p.Label = p.Title
	setIDs(p)
	b.pages[source] = p
	return p, nil
}

// targetOf is the path of a page's HTML.
func targetOf(source string) string {
	switch source {
	case home:
		return "index.html"
	case index:
		return "docs.html"
	}
	if folder, ok := strings.CutSuffix(source, "/README.md"); ok {
		source = folder + ".md"
	}
	return strings.ToLower(strings.TrimPrefix(strings.TrimSuffix(source, ".md"), "docs/")) + ".html"
}

// readSections makes sections of the headings in the table of contents, with the pages that the first cells of the
// tables below link to.
func (b *book) readSections(contents *page) error {
	return ast.Walk(contents.doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 2 {
				b.sections = append(b.sections, section{Title: contents.plain(n)})
			}
		case *east.TableCell:
			if n.PreviousSibling() != nil {
				return ast.WalkSkipChildren, nil
			}
		case *ast.Link:
			if len(b.sections) == 1 {
				break
			}
			return ast.WalkSkipChildren, b.list(contents, n)
		}
		return ast.WalkContinue, nil
	})
}

// list adds the page that a link leads to to the last section, unless it has a place.
func (b *book) list(contents *page, link *ast.Link) error {
	source, _, ok := b.pageAt(contents.source, string(link.Destination))
	if !ok || b.pages[source] != nil {
		return nil
	}
	p, err := b.read(source)
	if err != nil {
		return err
	}
	if link.PreviousSibling() == nil && link.NextSibling() == nil { // otherwise, its text is part of a sentence
		p.Label = contents.plain(link)
	}
	last := &b.sections[len(b.sections)-1]
	last.Pages = append(last.Pages, p)
	b.order = append(b.order, p)
	return nil
}

// readOthers reads the pages that are linked to from others only. They are the last section.
func (b *book) readOthers() error {
	more := section{Title: "More"}
	for i := 0; i < len(b.order); i++ {
		for _, link := range b.order[i].links() {
			source, _, ok := b.pageAt(b.order[i].source, link)
			if !ok || b.pages[source] != nil {
				continue
			}
			p, err := b.read(source)
			if err != nil {
				return fmt.Errorf("%s links to it: %w", b.order[i].source, err)
			}
			more.Pages = append(more.Pages, p)
			b.order = append(b.order, p)
		}
	}
	b.sections = append(b.sections, more)
	b.sections = slices.DeleteFunc(b.sections, func(s section) bool { return len(s.Pages) == 0 })
	return nil
}

// links are the destinations of the page's links.
func (p *page) links() []string {
	var all []string
	_ = ast.Walk(p.doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // returns no error
		if link, ok := n.(*ast.Link); ok && entering {
			all = append(all, string(link.Destination))
		}
		return ast.WalkContinue, nil
	})
	return all
}

// pageAt returns the source of the page that a link on a page leads to: a Markdown file, or a folder with a README.md.
func (b *book) pageAt(from, link string) (source, fragment string, ok bool) {
	target, fragment, _ := strings.Cut(link, "#")
	if strings.Contains(target, ":") {
		return "", "", false
	}
	if target == "" {
		return from, fragment, true
	}
	source = path.Join(path.Dir(from), target)
	if path.Ext(source) != ".md" {
		source = path.Join(source, "README.md")
	}
	_, err := fs.Stat(b.files, source)
	return source, fragment, err == nil
}

// plain is the text of a node, without its marks.
func (p *page) plain(n ast.Node) string {
	var out bytes.Buffer
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // returns no error
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				out.Write(n.Segment.Value(p.text))
				if n.SoftLineBreak() || n.HardLineBreak() {
					out.WriteByte(' ')
				}
			}
		case *ast.AutoLink:
			if entering {
				out.Write(n.Label(p.text))
			}
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			if entering {
				out.Write(n.Lines().Value(p.text))
			}
		case *ast.RawHTML, *ast.HTMLBlock:
			return ast.WalkSkipChildren, nil
		case *east.TableCell, *ast.Paragraph, *ast.ListItem:
			if !entering {
				out.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.TrimSpace(out.String())
}
