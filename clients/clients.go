// Package clients embeds the client packages, so that a running server can serve them for download.
package clients

import (
	"archive/tar"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"io/fs"
)

//go:embed world/package.json world/index.js world/index.d.ts world/preload.mjs world/README.md world/lib/*.js
var files embed.FS

// WorldTarball writes the npm package @stepwell/world in the format of npm pack. The output is byte-for-byte
// reproducible, so that the checksums in lock files stay valid.
func WorldTarball(w io.Writer) error {
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	err := fs.WalkDir(files, "world", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return addFile(archive, name)
	})
	if err != nil {
		return fmt.Errorf("pack: %w", err)
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
	// npm requires all files to be below "package/".
	header := &tar.Header{Name: "package" + name[len("world"):], Mode: 0o644, Size: int64(len(data))}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = archive.Write(data)
	return err
}
