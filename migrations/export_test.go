package migrations

import "io/fs"

// With returns the migrator with other migrations than those of the program.
func (m Migrator) With(files fs.FS) Migrator {
	m.files = files
	return m
}

// What is between this process and Postgres is looked at by these.
var (
	CheckSessions   = checkSessions
	CompareSessions = compareSessions
	Backend         = backend
	RefusedSettings = refusedSettings
)

// Compatible is what [Check] and Up ask.
var Compatible = compatible
