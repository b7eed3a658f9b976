package main

import "time"

// plan determines the duration and the amount of all measurements.
type plan struct {
	warm   time.Duration // warm-up before each measured window
	window time.Duration // of appends
	rounds int           // of A B A B
	// floorTimes is the number of transactions per pgbench client, instead of the window, which is at least a second.
	floorTimes int

	clients  []int // for appends
	inFlight []int // runs in flight
	// goInFlight are those of the Go SDK.
	goInFlight []int
	engine     time.Duration
	open       time.Duration
	grace      time.Duration // how long open loops wait for unfinished operations
	// overloadGrace is the same after an overload, and recovery how long after it the server is to be as fast as before.
	// Settle is how long an overload lasts before runs that end are counted.
	overloadGrace, recovery, settle time.Duration
	shapes                          []string // of runs, see shapeOf

	peer, peerOther time.Duration // of the peers' runs of three steps, and of their other runs

	items, itemsOpen []int // of maps

	idle time.Duration

	ended  int64         // runs that disk is measured with
	endFor time.Duration // how long they end before each vacuum

	sdk sdkPlan
}

func planFor(short bool) plan {
	if short {
		return plan{
			warm: 50 * time.Millisecond, window: 200 * time.Millisecond, rounds: 1, floorTimes: 50,
			clients: []int{1, 8}, inFlight: []int{1, 8}, goInFlight: []int{1, 8}, engine: 300 * time.Millisecond,
			open: 300 * time.Millisecond, grace: 10 * time.Second,
			overloadGrace: 30 * time.Second, recovery: 300 * time.Millisecond,
			shapes: []string{"seq-1", "seq-3", "wide-5"}, peer: 300 * time.Millisecond, peerOther: 300 * time.Millisecond,

			items: []int{20}, itemsOpen: []int{5},
			idle: time.Second, ended: 500, endFor: 2 * time.Second, sdk: sdkPlanFor(true),
		}
	}
	return plan{
		warm: time.Second, window: 5 * time.Second, rounds: 2,
		clients: []int{1, 8, 32}, inFlight: []int{1, 8, 32, 200}, goInFlight: []int{1, 200}, engine: 8 * time.Second,
		open: 15 * time.Second, grace: 10 * time.Second,
		overloadGrace: time.Minute, recovery: 5 * time.Second, settle: 5 * time.Second,
		shapes: []string{"seq-1", "seq-3", "seq-10", "wide-50"}, peer: 5 * time.Second, peerOther: 3 * time.Second,

		items: []int{1_000, 10_000}, itemsOpen: []int{100, 1_000},
		idle: 30 * time.Second, ended: 3_000, endFor: 2 * time.Second,
		sdk: sdkPlanFor(false),
	}
}
