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
package hostile
