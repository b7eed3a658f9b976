package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
)

// Folder keeps the file of each run in a folder per project.
type Folder struct {
	dir        string
	maintainer *upkeep.Maintainer
}

// NewFolder makes an archive in the folder, which must exist: a mount that is missing is no new folder.
func NewFolder(dir string, maintainer *upkeep.Maintainer) (*Folder, error) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = errors.New("it is no folder")
	}
	if err != nil {
		return nil, fmt.Errorf("open archive %s: %w", dir, err)
	}
	return &Folder{dir: dir, maintainer: maintainer}, nil
}

// Path is where the file of a run is.
func (f *Folder) Path(project entities.Project, id entities.RunID) string {
	return filepath.Join(f.dir, string(project), string(id)+Suffix)
}

// Store exports a run into its file, and says how much that was. When it returns without an error the file is
// on disk. Until then, and after an error, the file is the one that was there before, or none. Storing again
// replaces it.
func (f *Folder) Store(
	ctx context.Context, project entities.Project, id entities.RunID,
) (size upkeep.RunSize, err error) {
	if err := validate(project, id); err != nil {
		return size, err
	}
	path := f.Path(project, id)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return size, fmt.Errorf("make folder of project: %w", err)
	}
	if err := syncDir(f.dir); err != nil { // also when another made it just now
		return size, err
	}
	err = WriteFile(path, func(w io.Writer) error {
		size, err = Export(ctx, f.maintainer, id, w)
		return err
	})
	return size, err
}

// validate reports whether project and run can be names of files.
func validate(project entities.Project, id entities.RunID) error {
	if err := entities.ValidateID("project", string(project)); err != nil {
		return err
	}
	return entities.ValidateID("run ID", string(id))
}

// WriteFile makes a file of what write writes, all of it or none: it is on disk, under its name, when there is
// no error.
func WriteFile(path string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("make file: %w", err)
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
		return fmt.Errorf("name file: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in a folder last.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the operator's own folder
	if err != nil {
		return fmt.Errorf("open folder: %w", err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("write folder: %w", err)
	}
	return nil
}
