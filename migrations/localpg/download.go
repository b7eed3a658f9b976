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

// What is downloaded, and from where.
const (
	downloadVersion = embeddedpostgres.V17
	downloadMajor   = 17
	mavenCentral    = "https://repo1.maven.org/maven2"
)

// cacheDir keeps downloads. Root's is where the server's user can reach it.
func cacheDir() string {
	if base, err := os.UserCacheDir(); err == nil && os.Geteuid() != 0 {
		return filepath.Join(base, "stepwell")
	}
	return "/var/cache/stepwell"
}

// downloaded is the folder in cache that a download leaves its programs in.
func downloaded(cache string) string {
	return filepath.Join(cache, "postgres-"+string(downloadVersion), "bin")
}

// download returns the folder of downloaded programs, fetching them once. Its work happens aside and is put
// in place by one rename, so that other processes see all of it or nothing.
func download(ctx context.Context, repository, cache string) (string, error) {
	bin := downloaded(cache)
	if hasPrograms(bin) {
		return bin, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // programs, for whoever runs the server
		return "", fmt.Errorf("create cache: %w", err)
	}
	fetched := make(chan error, 1)
	go func() { fetched <- fetchInto(filepath.Dir(bin), repository, cache) }() // the library knows no context
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case err := <-fetched:
		return bin, err
	}
}

// fetchInto fetches to a work folder and renames the result to home.
func fetchInto(home, repository, cache string) error {
	work, err := os.MkdirTemp(cache, "download-")
	if err != nil {
		return fmt.Errorf("create cache: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := fetch(work, repository); err != nil {
		return fmt.Errorf("fetch Postgres %s: %w", downloadVersion, err)
	}
	err = os.Rename(filepath.Join(work, "postgres"), home)
	if err != nil && !hasPrograms(filepath.Join(home, "bin")) { // else another process was faster
		return fmt.Errorf("keep programs: %w", err)
	}
	return nil
}

// fetch has the library fetch and unpack the programs to work/postgres. The library can only do that as part
// of starting a server; the data folder it is given is a sham, which keeps it from making a cluster and makes
// the start fail. What counts is that the programs are there.
func fetch(work, repository string) error {
	sham := filepath.Join(work, "sham")
	if err := os.Mkdir(sham, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(sham, "PG_VERSION"), []byte(strconv.Itoa(downloadMajor)), 0o600); err != nil {
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
		DataPath(sham).
		Port(uint32(port)).
		Logger(io.Discard)).Start()
	if hasPrograms(filepath.Join(work, "postgres", "bin")) {
		return nil
	}
	return err
}
