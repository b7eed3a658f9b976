// Package torture is a fault-injection test. It runs apps on the real Workflow SDK against two real servers on one real
// Postgres, while all of them are killed, stopped, frozen, disconnected and restarted at random. Afterwards it checks
// that nothing was lost, is stuck, was duplicated, or has leaked.
//
// By default TestTorture is short and injects every kind of fault once. With TORTURE_FOR it runs for that time and
// prints a table (see make torture and docs/torture.md). Faults and runs are generated from a seed, which TORTURE_SEED
// repeats. Each process has its own sequence of faults and pauses. The sequences run concurrently, so their
// interleaving depends on the machine.
//
// The package contains only tests:
//
//	plan_test.go       random plans for runs, with known results
//	cluster_test.go    two servers, two apps, a Postgres and a balancer
//	                   (supervised_test.go, postgres_test.go, balancer_test.go)
//	fault_test.go      the faults and their schedule
//	driver_test.go     starts runs, resumes hooks, reads streams, and retries failures
//	report_test.go     checks every run, step and stream
//	leftovers_test.go  checks that no rows, connections or goroutines are left
package torture
