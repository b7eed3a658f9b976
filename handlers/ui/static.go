package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

// ErrNoFile is returned for files that the dashboard does not have: those of another version, for example.
var ErrNoFile = errors.New("the dashboard has no such file: reload the page")

// file is a file of the dashboard.
type file struct {
	kind           string // MIME type
	etag           string
	plain, gzipped []byte
}

// static has the dashboard's files.
type static struct {
	index  file
	assets map[string]file // by name
}

// newStatic reads the files and compresses them once.
func newStatic(files fs.FS, base string) (*static, error) {
	index, err := fs.ReadFile(files, "index.html")
	if err != nil {
		return nil, fmt.Errorf("read dashboard: %w", err)
	}
	page := strings.ReplaceAll(string(index), "{{base}}", html.EscapeString(base))
	s := &static{index: newFile("index.html", []byte(page)), assets: map[string]file{}}
	names, err := fs.Glob(files, "assets/*")
	if err != nil {
		return nil, fmt.Errorf("list dashboard: %w", err)
	}
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read dashboard: %w", err)
		}
		s.assets[path.Base(name)] = newFile(name, data)
	}
	return s, nil
}

func newFile(name string, data []byte) file {
	var zipped bytes.Buffer
	w, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression) // a valid level
	_, _ = w.Write(data)                                       // a buffer never fails
	_ = w.Close()
	return file{
		kind: mime.TypeByExtension(path.Ext(name)), etag: fmt.Sprintf(`"%x"`, sha256.Sum256(data)),
		plain: data, gzipped: zipped.Bytes(),
	}
}

// page answers with the page for all paths that have nothing else: it shows what its address says.
func (s *Server) page(c echo.Context) error {
	c.Response().Header().Set(echo.HeaderCacheControl, "no-cache")
	return s.static.index.serve(c)
}

// asset answers with a file. As its name has its hash, browsers may keep it for ever.
func (s *Server) asset(c echo.Context) error {
	f, ok := s.static.assets[c.Param("name")]
	if !ok {
		return ErrNoFile
	}
	c.Response().Header().Set(echo.HeaderCacheControl, "public, max-age=31536000, immutable")
	return f.serve(c)
}

func (f file) serve(c echo.Context) error {
	h, data := c.Response().Header(), f.plain
	h.Set(echo.HeaderContentType, f.kind)
	h.Set("ETag", f.etag)
	h.Set(echo.HeaderVary, echo.HeaderAcceptEncoding)
	if incoming.AcceptsGzip(c.Request()) {
		h.Set(echo.HeaderContentEncoding, "gzip")
		data = f.gzipped
	}
	http.ServeContent(c.Response(), c.Request(), "", time.Time{}, bytes.NewReader(data))
	return nil
}
