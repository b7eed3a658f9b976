// Package torture runs apps on the real Workflow SDK against two real servers on one real Postgres, while all of
// them are killed, stopped, frozen, cut off and restarted at random; and then looks whether anything was lost,
// stuck or doubled, or has leaked.
//
// TestTorture is short as a part of all tests: every kind of fault once. It takes as long as TORTURE_FOR says,
// and prints a table (make torture; docs/torture.md has one). The faults and the runs come from a seed, which
// TORTURE_SEED repeats: each thing that is tortured has its own sequence of faults and pauses, all go on at
// once, and how they meet is up to the machine.
//
// There is nothing in it but tests:
//
//	plan_test.go       what runs do: random programs, of which the right result is known
//	scene_test.go      two servers, two apps, a Postgres and a balancer
//	                   (unit_test.go, postgres_test.go, balancer_test.go)
//	fault_test.go      what is done to them, and when
//	driver_test.go     starts runs, resumes hooks, reads streams, and repeats what fails
//	verdict_test.go    what became of every run, step and stream
//	leftovers_test.go  what must be gone in the end: rows, connections, goroutines
package torture
