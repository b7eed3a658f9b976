// Package testdb gives each test a Postgres database of its own and removes it afterwards:
//
//	func TestMain(m *testing.M) { testdb.Main(m) }
//
//	func TestAppend(t *testing.T) {
//		t.Parallel()
//		pool := testdb.Pool(t)
//		…
//	}
//
// It may import migrations and migrations/localpg. Only tests may import it.
//
// # Where the server comes from
//
// The first test of a process that needs a server takes the first of these:
//
//   - the server in TEST_DATABASE_URL
//   - a throwaway server, started from Postgres programs on the machine (see localpg)
//
// Without both the test fails with a message that says what to do. It is never skipped. The process migrates one
// template database, and each New clones it.
//
// # Cleaning up
//
// Nothing is left behind. Each database is dropped when its test ends. Main drops the template and stops the throwaway
// server when all tests have ended. If Main is missing, or the process is killed or times out:
//
//   - A throwaway server dies with the process and its folder is removed (see localpg).
//   - On the server in TEST_DATABASE_URL, the next process drops the databases of the dead one. Each process has a
//     number, which is in the names of its databases, and holds an advisory lock on it for as long as it lives.
package testdb
