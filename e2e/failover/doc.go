// Package failover tests a real server while its Postgres fails over: nodes die, turn read-only, come back stale, or
// lag behind. One test kills servers as well, under load that needs slots of limits. Each test has Postgres nodes of
// its own.
//
// The package contains only tests.
package failover
