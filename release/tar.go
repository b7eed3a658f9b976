package main

import (
	"archive/tar"
	"io"
	"os"
	"path/filepath"
	"time"
)

// entry is a file in a tar file. Nothing of the file but its content and whether it is a program is kept.
type entry struct {
	name string // in the tar file
	file string
}

// writeTar writes a tar file that depends on nothing else than the names, the contents and the time.
func writeTar(w io.Writer, list []entry, at time.Time) error {
	archive := tar.NewWriter(w)
	for _, e := range list {
		data, err := os.ReadFile(e.file)
		if err != nil {
			return err
		}
		header := &tar.Header{
			Name: e.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data)), ModTime: at, Format: tar.FormatPAX,
		}
		if filepath.Base(e.name) == "stepwell" {
			header.Mode = 0o755
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(data); err != nil {
			return err
		}
	}
	return archive.Close()
}

// below lists the files of a folder in the order of their names, with their paths in it.
func below(folder string) (list []entry, err error) {
	err = filepath.WalkDir(folder, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, name)
		list = append(list, entry{filepath.ToSlash(relative), name})
		return err
	})
	return list, err
}
