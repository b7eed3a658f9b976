// Package clients embeds what users install on their side, so that a running server can hand it out. It
// imports nothing else of the module.
package clients

import (
	"archive/tar"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"io/fs"
)

//go:embed world/package.json world/index.js world/index.d.ts world/preload.mjs world/README.md
var files embed.FS

// WorldTarball writes the npm package @stepwell/world as npm pack would: the same bytes each time, so
// that lock files stay true.
func WorldTarball(w io.Writer) error {
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	names, err := fs.Glob(files, "world/*")
	if err != nil {
		return fmt.Errorf("list package: %w", err)
	}
	for _, name := range names {
		if err := addFile(archive, name); err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	if err := zipped.Close(); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	return nil
}

func addFile(archive *tar.Writer, name string) error {
	data, err := files.ReadFile(name)
	if err != nil {
		return err
	}
	// npm wants everything below "package/".
	header := &tar.Header{Name: "package" + name[len("world"):], Mode: 0o644, Size: int64(len(data))}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = archive.Write(data)
	return err
}
