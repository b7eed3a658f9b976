package clients

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// packed returns the files of the package by name.
func packed(t *testing.T) map[string]string {
	t.Helper()
	var tarball bytes.Buffer
	if err := WorldTarball(&tarball); err != nil {
		t.Fatal(err)
	}
	zipped, err := gzip.NewReader(&tarball)
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]string{}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(header.Name, "package/")
		if _, duplicate := content[name]; !ok || duplicate || header.Mode != 0o644 || header.Typeflag != tar.TypeReg {
			t.Errorf("entry %+v: want a readable file below package/, once", header)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		content[name] = string(data)
	}
	if rest, err := io.ReadAll(zipped); err != nil || len(rest) > 0 && len(bytes.Trim(rest, "\x00")) > 0 {
		t.Errorf("after the archive: %q, %v", rest, err)
	}
	return content
}

// manifest is the part of package.json that the tests check.
type manifest struct {
	Files   []string                   `json:"files"`
	Exports map[string]json.RawMessage `json:"exports"`
}

func readManifest(t *testing.T, text string) manifest {
	t.Helper()
	var m manifest
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestWorldTarballMatchesManifest(t *testing.T) {
	t.Parallel()
	content := packed(t)
	m := readManifest(t, content["package.json"])
	want := append([]string{"package.json", "README.md"}, m.Files...)
	slices.Sort(want)
	got := []string{}
	for name, data := range content {
		got = append(got, name)
		onDisk, err := os.ReadFile(filepath.Join("world", name))
		if err != nil {
			t.Error(err)
		}
		if string(onDisk) != data {
			t.Errorf("%s differs from the file in the repository", name)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for entry, target := range m.Exports {
		for _, file := range targets(t, target) {
			if _, ok := content[path.Clean(file)]; !ok {
				t.Errorf("export %s refers to %s, which is not packed", entry, file)
			}
		}
	}
	if len(m.Exports) == 0 || len(m.Files) == 0 {
		t.Errorf("package.json lacks exports or files: %+v", m)
	}
}

// targets returns the files that an entry of exports refers to.
func targets(t *testing.T, target json.RawMessage) []string {
	t.Helper()
	var one string
	if json.Unmarshal(target, &one) == nil {
		return []string{one}
	}
	var conditions map[string]json.RawMessage
	if err := json.Unmarshal(target, &conditions); err != nil {
		t.Fatalf("exports: %s", target)
	}
	var files []string
	for _, nested := range conditions {
		files = append(files, targets(t, nested)...)
	}
	return files
}

// TestWorldTarballPacksEveryFile checks that every file is packed, except tests and npm's own.
func TestWorldTarballPacksEveryFile(t *testing.T) {
	t.Parallel()
	content := packed(t)
	err := fs.WalkDir(os.DirFS("world"), ".", func(name string, e fs.DirEntry, err error) error {
		if e.Name() == "node_modules" {
			return fs.SkipDir
		}
		if _, ok := content[name]; !ok && !e.IsDir() && !strings.Contains(name, ".test.") {
			t.Errorf("world/%s is neither packed nor a test", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWorldTarballIsReproducible protects the checksums in users' lock files.
func TestWorldTarballIsReproducible(t *testing.T) {
	t.Parallel()
	var first, second bytes.Buffer
	if err := WorldTarball(&first); err != nil {
		t.Fatal(err)
	}
	if err := WorldTarball(&second); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two tarballs differ")
	}
	zipped, err := gzip.NewReader(&first)
	if err != nil {
		t.Fatal(err)
	}
	if !zipped.ModTime.IsZero() || zipped.Name != "" {
		t.Errorf("gzip header %+v contains the time or place of the build", zipped.Header)
	}
	header, err := tar.NewReader(zipped).Next()
	if err != nil {
		t.Fatal(err)
	}
	if header.ModTime.Unix() > 0 || header.Uname != "" || header.Uid != 0 {
		t.Errorf("tar header %+v contains the time or user of the build", header)
	}
}

// limitedWriter fails once its capacity is used up.
type limitedWriter struct{ left int }

func (w *limitedWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		return 0, io.ErrShortWrite
	}
	w.left -= len(p)
	return len(p), nil
}

func TestWorldTarballReportsFailedWrites(t *testing.T) {
	t.Parallel()
	var whole bytes.Buffer
	if err := WorldTarball(&whole); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 10, whole.Len() - 1} {
		if err := WorldTarball(&limitedWriter{left: n}); err == nil {
			t.Errorf("no error from a writer that is full after %d bytes", n)
		}
	}
	if err := WorldTarball(&limitedWriter{left: whole.Len()}); err != nil {
		t.Errorf("a writer with just enough room: %v", err)
	}
}
