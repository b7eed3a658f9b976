package localpg

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
)

// repository serves the archive in testdata as Maven would, and counts the downloads. The programs in the archive are
// scripts.
func repository(t *testing.T) (address string, downloads *atomic.Int32) {
	t.Helper()
	archive, err := os.ReadFile("testdata/postgres.txz")
	if err != nil {
		t.Fatal(err)
	}
	var jar bytes.Buffer
	z := zip.NewWriter(&jar)
	w, err := z.Create("postgres.txz")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(archive); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	downloads = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, ".jar") {
			http.NotFound(w, r)
			return
		}
		downloads.Add(1)
		_, _ = w.Write(jar.Bytes())
	}))
	t.Cleanup(s.Close)
	return s.URL, downloads
}

func TestDownloadIsCached(t *testing.T) {
	t.Parallel()
	address, downloads := repository(t)
	cache := newDir(t)
	for range 2 {
		bin, err := download(t.Context(), address, cache)
		if err != nil {
			t.Fatal(err)
		}
		p, err := inspect(t.Context(), bin, newFolder(t, 0).account)
		if err != nil || p.major != downloadMajor {
			t.Errorf("got %v, %v, want programs of Postgres %d", p, err, downloadMajor)
		}
	}
	if n := downloads.Load(); n != 1 {
		t.Errorf("downloaded %d times", n)
	}
	if entries, err := os.ReadDir(cache); err != nil || len(entries) != 1 {
		t.Errorf("the cache holds %v (%v), want only the programs", entries, err)
	}
}

func TestFailedDownloadLeavesNothing(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	cache := newDir(t)
	if _, err := download(t.Context(), s.URL, cache); err == nil {
		t.Error("no error")
	}
	if entries, err := os.ReadDir(cache); err != nil || len(entries) != 0 {
		t.Errorf("the cache holds %v (%v), want nothing", entries, err)
	}
}

func TestDownloadEndsWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		cancel()
		<-answer
	}))
	defer s.Close()
	cache := newDir(t)
	if _, err := download(ctx, s.URL, cache); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	close(answer)
	eventually(t, "the cancelled download has cleaned up", func() bool {
		entries, err := os.ReadDir(cache)
		return err == nil && len(entries) == 0
	})
}
