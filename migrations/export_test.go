package migrations

import "io/fs"

// With returns the migrator with other migrations than those of the program.
func (m Migrator) With(files fs.FS) Migrator {
	m.files = files
	return m
}
