// Package hostile attacks a real server on a real Postgres: as a tenant that takes more than its share, and as a
// stranger without a key. Each test checks that the attacker gets errors and everybody else gets service. Each attack
// is bounded in size and time.
//
// The victim is another project of the same server. It runs workflows of three steps before the attack and during it,
// and its median time may at most triple; see [fixture.wantUnharmed].
//
// The tests of this package that measure times or memory run one after the other. The others then run in parallel. The
// package contains only tests:
//
//	server_test.go    the server, its projects, and requests to it
//	function_test.go  the function that both projects use
//	victim_test.go    the victim's runs and their times
//
// [TestNeighbours] tries many abuses in the same way, and makes a table for docs/neighbours.md:
//
//	neighbours_test.go  the test, and the victim that it watches
//	neighbour_test.go   a row of the table, and its verdict
//	abuse_test.go       what an abuse is, and what its clients do
//	abuse_*_test.go     the abuses by kind
package hostile
