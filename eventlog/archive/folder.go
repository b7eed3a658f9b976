package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/runfile"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
)

// Folder stores the file of each run in a folder per project.
type Folder struct {
	dir        string
	maintainer *upkeep.Maintainer
}

// NewFolder returns an archive in the folder. The folder must exist: it is not created, because it may be a mount that
// is missing.
func NewFolder(dir string, maintainer *upkeep.Maintainer) (*Folder, error) {
	if err := checkFolder(dir); err != nil {
		return nil, fmt.Errorf("open archive %s: %w", dir, err)
	}
	return &Folder{dir: dir, maintainer: maintainer}, nil
}

func checkFolder(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = errors.New("not a folder")
	}
	return err
}

// Path returns the path of the file of a run.
func (f *Folder) Path(project entities.Project, id entities.RunID) string {
	return filepath.Join(f.dir, string(project), string(id)+runfile.Suffix)
}

// Store exports a run into its file and returns its size. When it returns without an error, the file is on disk.
// After an error the previous file, if any, is unchanged. Store replaces the file of an earlier export.
func (f *Folder) Store(
	ctx context.Context, project entities.Project, id entities.RunID,
) (size upkeep.RunSize, err error) {
	if err := validate(project, id); err != nil {
		return size, err
	}
	path := f.Path(project, id)
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return size, err
	}
	err = WriteFile(path, func(w io.Writer) error {
		size, err = runfile.Export(ctx, f.maintainer, id, w)
		return err
	})
	return size, err
}

// Open opens the file of a run. It fails with [runfile.ErrNotArchived] if there is none.
func (f *Folder) Open(_ context.Context, project entities.Project, id entities.RunID) (io.ReadCloser, error) {
	if err := validate(project, id); err != nil {
		return nil, err
	}
	file, err := os.Open(f.Path(project, id))
	if errors.Is(err, os.ErrNotExist) && checkFolder(f.dir) == nil {
		return nil, runfile.ErrNotArchived
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return file, nil
}

// Check fails if the folder is missing.
func (f *Folder) Check(context.Context) error { return checkFolder(f.dir) }

// makeFolder creates the folder of a project, durably.
func makeFolder(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("create folder of project: %w", err)
	}
	return syncDir(filepath.Dir(dir)) // even if another process has created it
}

// validate returns an error unless project and run are safe as file names.
func validate(project entities.Project, id entities.RunID) error {
	if err := entities.ValidateID("project", string(project)); err != nil {
		return err
	}
	return entities.ValidateID("run ID", string(id))
}

// WriteFile writes a file atomically: without an error, the whole file is on disk under its name; with one, the
// previous file is unchanged.
func WriteFile(path string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("create file: %w", err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(file.Name())
		}
	}()
	if err := write(file); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return fmt.Errorf("rename file: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

// syncDir flushes the entries of a folder to disk.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the operator's own folder
	if err != nil {
		return fmt.Errorf("open folder: %w", err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}
