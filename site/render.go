package main

import (
	"bytes"
	"fmt"
	"html"
	"image/png"
	"io/fs"
	"path"
	"strings"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/yuin/goldmark"

	"github.com/stepwell-dev/stepwell/site/cast"
)

var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(
	parser.WithASTTransformers(util.Prioritized(recordings{}, 1000))))

// render returns the HTML of a page. It rewrites the links of its document, and so is called once.
func (b *book) render(p *page) ([]byte, error) {
	err := ast.Walk(p.doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var err error
		var to string
		switch n := n.(type) {
		case *ast.Link:
			to, err = b.href(p, string(n.Destination))
			n.Destination = []byte(to)
		case *ast.Image:
			err = b.place(p, n)
		case *recording:
			err = b.placeRecording(p, n)
		}
		return ast.WalkContinue, err
	})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	to := goldmark.New(goldmark.WithExtensions(extension.GFM)).Renderer()
	to.AddOptions(renderer.WithNodeRenderers(util.Prioritized(nodes{}, 1)))
	err = to.Render(&out, p.text, p.doc)
	return out.Bytes(), err
}

// place says where a picture is, and how large.
func (b *book) place(p *page, n *ast.Image) error {
	link := string(n.Destination)
	to, err := b.image(p, link)
	if err != nil {
		return err
	}
	n.Destination = []byte(to)
	file, err := b.files.Open(path.Join(path.Dir(p.source), link))
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was read
	size, err := png.DecodeConfig(file)
	if err != nil {
		return fmt.Errorf("%s shows %s: %w", p.source, link, err)
	}
	n.SetAttributeString("loading", []byte("lazy"))
	n.SetAttributeString("width", fmt.Appendf(nil, "%d", size.Width))
	n.SetAttributeString("height", fmt.Appendf(nil, "%d", size.Height))
	return nil
}

// recording is a paragraph that is nothing but a picture of a recording.
type recording struct {
	ast.BaseBlock
	link, about, src string
	cast             cast.Recording
}

var kindRecording = ast.NewNodeKind("Recording")

func (r *recording) Kind() ast.NodeKind { return kindRecording }

func (r *recording) Dump(source []byte, level int) { ast.DumpHelper(r, source, level, nil, nil) }

// recordings makes recording of paragraphs that are.
type recordings struct{}

func (recordings) Transform(doc *ast.Document, reader text.Reader, _ parser.Context) {
	for n := doc.FirstChild(); n != nil; {
		next := n.NextSibling()
		image, ok := n.FirstChild().(*ast.Image)
		if ok && n.ChildCount() == 1 && path.Base(string(image.Destination)) == "recording.svg" {
			var about strings.Builder
			for t := image.FirstChild(); t != nil; t = t.NextSibling() {
				if t, ok := t.(*ast.Text); ok {
					about.Write(t.Segment.Value(reader.Source()))
					about.WriteByte(' ')
				}
			}
			doc.ReplaceChild(doc, n, &recording{link: string(image.Destination), about: strings.TrimSpace(about.String())})
		}
		n = next
	}
}

func (b *book) placeRecording(p *page, n *recording) (err error) {
	if n.src, err = b.image(p, n.link); err != nil {
		return err
	}
	name := path.Join(path.Dir(p.source), strings.TrimSuffix(n.link, ".svg")+".cast")
	text, err := fs.ReadFile(b.files, name)
	if err != nil {
		return err
	}
	n.cast, err = cast.Read(bytes.NewReader(text))
	return err
}

// nodes renders what goldmark renders otherwise.
type nodes struct{}

func (nodes) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindHeading, heading)
	r.Register(ast.KindFencedCodeBlock, code)
	r.Register(ast.KindCodeBlock, code)
	r.Register(ast.KindHTMLBlock, comment)
	r.Register(east.KindTable, table)
	r.Register(east.KindTableCell, cell)
	r.Register(kindRecording, animation)
}

// put writes to a writer that keeps an error until it is flushed.
func put(w util.BufWriter, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// heading has a link to itself.
func heading(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	h := n.(*ast.Heading)
	if entering {
		put(w, "<h%d id=%q>", h.Level, idOf(h))
	} else {
		put(w, " <a class=\"anchor\" href=\"#%s\" aria-label=\"Link to this heading\">#</a></h%d>\n", idOf(h), h.Level)
	}
	return ast.WalkContinue, nil
}

// table can be scrolled sideways, also by keys.
func table(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		put(w, "<div class=\"wide\" tabindex=\"0\"><table>\n")
	} else {
		put(w, "</table></div>\n")
	}
	return ast.WalkContinue, nil
}

// cell is aligned by a class.
func cell(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	c, tag := n.(*east.TableCell), "td"
	if n.Parent().Kind() == east.KindTableHeader {
		tag = "th"
	}
	switch {
	case !entering:
		put(w, "</%s>\n", tag)
	case c.Alignment == east.AlignNone:
		put(w, "<%s>", tag)
	default:
		put(w, "<%s class=%q>", tag, c.Alignment)
	}
	return ast.WalkContinue, nil
}

// comment omits comments, which are the only HTML in the pages.
func comment(_ util.BufWriter, source []byte, n ast.Node, _ bool) (ast.WalkStatus, error) {
	if text := bytes.TrimSpace(n.Lines().Value(source)); !bytes.HasPrefix(text, []byte("<!--")) {
		return ast.WalkStop, fmt.Errorf("HTML in a page: %s", text)
	}
	return ast.WalkSkipChildren, nil
}

// code is coloured by classes.
func code(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	var lexer chroma.Lexer
	if fenced, ok := n.(*ast.FencedCodeBlock); ok {
		lexer = lexers.Get(string(fenced.Language(source)))
	}
	if lexer == nil {
		lexer = lexers.Fallback
	}
	tokens, err := chroma.Coalesce(lexer).Tokenise(nil, string(n.Lines().Value(source)))
	if err != nil {
		return ast.WalkStop, err
	}
	put(w, `<pre tabindex="0"><code>`)
	for _, token := range tokens.Tokens() {
		if class := classOf(token.Type); class != "" {
			put(w, `<span class=%q>%s</span>`, class, html.EscapeString(token.Value))
		} else {
			put(w, "%s", html.EscapeString(token.Value))
		}
	}
	put(w, "</code></pre>\n")
	return ast.WalkSkipChildren, nil
}

// classOf is the class of a token in style.css; empty for most.
func classOf(t chroma.TokenType) string {
	switch {
	case t.InCategory(chroma.Keyword), t == chroma.NameTag:
		return "k"
	case t.InCategory(chroma.Comment):
		return "c"
	case t.InSubCategory(chroma.LiteralString):
		return "s"
	case t.InSubCategory(chroma.LiteralNumber):
		return "n"
	case t == chroma.NameFunction, t == chroma.NameDecorator, t == chroma.NameBuiltin:
		return "f"
	}
	return ""
}

// animation shows a recording, its end instead if that is wanted, and its text.
func animation(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	r := n.(*recording)
	if entering {
		src, about := html.EscapeString(r.src), html.EscapeString(r.about)
		put(w, `<figure class="recording">
<input type="checkbox" id="site-still"><label for="site-still">Show only the end</label>
<img class="moving" src="%s" alt="%s"><img class="still" src="%s#still" loading="lazy" alt="%s">
<details><summary>As text</summary><pre tabindex="0"><code>%s</code></pre></details></figure>
`, src, about, src, about, html.EscapeString(r.cast.Text()))
	}
	return ast.WalkSkipChildren, nil
}
