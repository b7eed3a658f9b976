package localpg

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// oldestMajor is the oldest Postgres that Stepwell runs on.
const oldestMajor = 14

// packageFolders are the folders outside PATH in which packages install the programs.
var packageFolders = []string{
	"/usr/lib/postgresql/*/bin",                               // Debian, Ubuntu
	"/usr/pgsql-*/bin",                                        // postgresql.org's packages for RHEL
	"/usr/lib/postgresql*/bin",                                // openSUSE
	"/usr/libexec/postgresql*",                                // Alpine
	"/usr/local/pgsql/bin",                                    // built from source
	"/opt/homebrew/opt/postgresql@*/bin",                      // Homebrew, Apple silicon
	"/usr/local/opt/postgresql@*/bin",                         // Homebrew, Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",         // Homebrew, Linux
	"/Applications/Postgres.app/Contents/Versions/[0-9]*/bin", // Postgres.app
	"/Library/PostgreSQL/*/bin",                               // EDB installer
	"/opt/local/lib/postgresql*/bin",                          // MacPorts
}

// finder searches for Postgres.
type finder struct {
	path     []string // the folders of PATH, in order
	packages []string // patterns of folders
	download func(ctx context.Context) (dir string, err error)
	// installedOnly makes find skip the download. Programs downloaded before count as installed then.
	installedOnly bool
}

// systemFinder searches this machine.
func systemFinder() finder {
	return finder{
		path:     filepath.SplitList(os.Getenv("PATH")),
		packages: packageFolders,
		download: func(ctx context.Context) (string, error) { return download(ctx, mavenCentral, cacheDir()) },
	}
}

// search is the state of one search.
type search struct {
	finder
	account account
	want    int      // the major version, 0 for any supported one
	tried   []string // why each place was not used
	found   []string // programs of other versions
}

// find returns the first programs that can run on the folder.
func (fd finder) find(ctx context.Context, f *folder) (programs, error) {
	major, err := f.major()
	if err != nil {
		return programs{}, err
	}
	s := &search{finder: fd, account: f.account, want: major}
	searches := []func(context.Context) (programs, bool){s.inPath, s.inPackages}
	if fd.installedOnly {
		s.packages = append(slices.Clip(fd.packages), downloaded(cacheDir()))
	} else {
		searches = append(searches, s.inDownload)
	}
	for _, in := range searches {
		if p, ok := in(ctx); ok {
			return p, nil
		}
		if ctx.Err() != nil { // which may be the only reason for the failure
			return programs{}, fmt.Errorf("find Postgres: %w", ctx.Err())
		}
	}
	if major != 0 {
		return programs{}, fmt.Errorf("data folder %s was written by Postgres %d, and only that version can open it "+
			"(found: %s): install Postgres %d, or choose another folder",
			f.dir, major, cmp.Or(strings.Join(s.found, ", "), "none"), major)
	}
	return programs{}, &MissingError{Tried: s.tried}
}

// inPath returns the first suitable programs in PATH.
func (s *search) inPath(ctx context.Context) (programs, bool) {
	all := s.inspectAll(ctx, s.path)
	if len(all) == 0 {
		s.noteMiss("PATH", "no folder has both initdb and postgres")
	}
	return s.first(all)
}

// inPackages returns the newest programs in the folders of packages.
func (s *search) inPackages(ctx context.Context) (programs, bool) {
	var all []programs
	for _, pattern := range s.packages {
		dirs, err := filepath.Glob(pattern)
		here := s.inspectAll(ctx, dirs)
		if err != nil || len(here) == 0 {
			s.noteMiss(pattern, "not found")
		}
		all = append(all, here...)
	}
	slices.SortStableFunc(all, func(a, b programs) int { return cmp.Compare(b.major, a.major) })
	return s.first(all)
}

// inDownload downloads the programs.
func (s *search) inDownload(ctx context.Context) (programs, bool) {
	if s.want != 0 && s.want != downloadMajor {
		return programs{}, false
	}
	dir, err := s.download(ctx)
	if err != nil {
		s.noteMiss("download", err.Error())
		return programs{}, false
	}
	return s.first(s.inspectAll(ctx, []string{dir}))
}

// inspectAll returns the programs in the folders, and notes which do not run.
func (s *search) inspectAll(ctx context.Context, dirs []string) []programs {
	var all []programs
	for _, dir := range dirs {
		if !hasPrograms(dir) {
			continue
		}
		p, err := inspect(ctx, dir, s.account)
		if err != nil {
			s.noteMiss(dir, err.Error())
			continue
		}
		all = append(all, p)
	}
	return all
}

// first returns the first programs of the wanted version, and notes those before.
func (s *search) first(all []programs) (programs, bool) {
	for _, p := range all {
		if p.major == s.want || s.want == 0 && p.major >= oldestMajor {
			return p, true
		}
		s.found = append(s.found, p.String())
		s.noteMiss(p.dir, fmt.Sprintf("is Postgres %d", p.major))
	}
	return programs{}, false
}

// noteMiss records why a place was not used.
func (s *search) noteMiss(place, why string) {
	s.tried = append(s.tried, place+": "+why)
}

// hasPrograms reports whether the folder has both programs. A relative folder in PATH does not count: running programs
// from the current directory would be unsafe.
func hasPrograms(dir string) bool {
	if !filepath.IsAbs(dir) {
		return false
	}
	for _, name := range []string{"initdb", "postgres"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}
