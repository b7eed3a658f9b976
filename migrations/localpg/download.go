package localpg

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// The version to download, and where from.
const (
	downloadVersion = embeddedpostgres.V17
	downloadMajor   = 17
	mavenCentral    = "https://repo1.maven.org/maven2"
)

// cacheDir is the folder for downloads. For root it is outside root's home, which the server's account cannot enter.
func cacheDir() string {
	if base, err := os.UserCacheDir(); err == nil && os.Geteuid() != 0 {
		return filepath.Join(base, "stepwell")
	}
	return "/var/cache/stepwell"
}

// downloaded is the folder of the downloaded programs in cache.
func downloaded(cache string) string {
	return filepath.Join(cache, "postgres-"+string(downloadVersion), "bin")
}

// download returns the folder of downloaded programs, and downloads them if they are not in the cache. It puts them in
// place by a single rename, so that other processes see all programs or none.
func download(ctx context.Context, repository, cache string) (string, error) {
	bin := downloaded(cache)
	if hasPrograms(bin) {
		return bin, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // the server's account must read it
		return "", fmt.Errorf("create cache: %w", err)
	}
	fetched := make(chan error, 1)
	go func() { fetched <- fetchTo(filepath.Dir(bin), repository, cache) }() // the library takes no context
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case err := <-fetched:
		return bin, err
	}
}

// fetchTo downloads to a temporary folder and renames the result to home.
func fetchTo(home, repository, cache string) error {
	work, err := os.MkdirTemp(cache, "download-")
	if err != nil {
		return fmt.Errorf("create cache: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := fetch(work, repository); err != nil {
		return fmt.Errorf("fetch Postgres %s: %w", downloadVersion, err)
	}
	err = os.Rename(filepath.Join(work, "postgres"), home)
	if err != nil && !hasPrograms(filepath.Join(home, "bin")) { // unless another process was faster
		return fmt.Errorf("install programs: %w", err)
	}
	return nil
}

// fetch downloads and unpacks the programs to work/postgres. The library does so only as part of starting a server. The
// dummy data folder keeps it from running initdb and makes the start fail, which is fine once the programs are there.
func fetch(work, repository string) error {
	dummy := filepath.Join(work, "dummy")
	if err := os.Mkdir(dummy, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dummy, "PG_VERSION"), []byte(strconv.Itoa(downloadMajor)), 0o600); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	err = embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(downloadVersion).
		BinaryRepositoryURL(repository).
		CachePath(filepath.Join(work, "archive")).
		RuntimePath(filepath.Join(work, "runtime")).
		BinariesPath(filepath.Join(work, "postgres")).
		DataPath(dummy).
		Port(uint32(port)).
		Logger(io.Discard)).Start()
	if hasPrograms(filepath.Join(work, "postgres", "bin")) {
		return nil
	}
	return err
}
