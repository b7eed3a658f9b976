// Package testdb gives a test its own Postgres database, and takes it away again:
//
//	func TestMain(m *testing.M) { testdb.Main(m) }
//
//	func TestAppend(t *testing.T) {
//		t.Parallel()
//		dsn := testdb.New(t)
//		…
//	}
//
// It may import migrations and migrations/localpg; only tests may import it.
//
// The server is the one that TEST_DATABASE_URL names, else a throwaway one that the first test of a process
// starts. Without either the test fails; it is never skipped. In it a template is migrated once per process,
// and each New clones it.
//
// # What is left behind
//
// Nothing. Each database is dropped when its test ends. Main drops the template and stops the server when all
// tests have ended. Without Main, or if the process is killed or runs into its time limit, a throwaway server
// still dies with the process, and its folder too (see localpg). On a server of TEST_DATABASE_URL the databases
// of such a process are dropped by the next process that comes: names hold a number, and a process holds an
// advisory lock on its number for as long as it lives.
package testdb
