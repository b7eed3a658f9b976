package main

import "time"

// plan determines the duration and the amount of all measurements.
type plan struct {
	warm   time.Duration // warm-up before each measured window
	window time.Duration // of appends and messages
	rounds int           // of A B A B
	// floorTimes is the number of transactions per pgbench client, instead of the window, which is at least a second.
	floorTimes int

	clients  []int // for appends
	inFlight []int // runs in flight
	// goInFlight are those of the Go SDK.
	goInFlight []int
	engine     time.Duration
	rates      []float64 // runs per second in an open loop
	open       time.Duration
	grace      time.Duration // how long open loops wait for unfinished operations
	// overloadGrace is the same after an overload, and recovery how long after it the server is to be as fast as before.
	// Settle is how long an overload lasts before runs that end are counted.
	overloadGrace, recovery, settle time.Duration
	shapes                          []string // of runs, see shapeOf

	messages int    // sent one after the other
	pause    pauses // between them
	hooks    int    // to resume
	load     []int  // messages in flight
	msgRates []float64

	logSizes   []int
	logAppends int // per size and round
	stored     int // runs in the full database
	idle       time.Duration
	waiting    []int  // runs that wait for a limit
	benchtime  string // for go test
	checked    int    // operations whose rows are counted

	sdk sdkPlan
}

// pauses are random pauses between operations on an idle server, from Min to twice Min. They are random so that the
// operations do not synchronize with the server's timers.
type pauses struct{ Min time.Duration }

func planFor(short bool) plan {
	if short {
		return plan{
			warm: 50 * time.Millisecond, window: 200 * time.Millisecond, rounds: 1, floorTimes: 50,
			clients: []int{1, 8}, inFlight: []int{1, 8}, goInFlight: []int{1, 8}, engine: 300 * time.Millisecond,
			rates: []float64{20}, open: 300 * time.Millisecond, grace: 10 * time.Second,
			overloadGrace: 30 * time.Second, recovery: 300 * time.Millisecond,
			shapes:   []string{"seq-1", "seq-3", "wide-5"},
			messages: 5, pause: pauses{5 * time.Millisecond}, hooks: 3, load: []int{4}, msgRates: []float64{50},
			logSizes: []int{10, 100}, logAppends: 20, stored: 10_000, idle: time.Second,
			waiting: []int{100, 1_000}, benchtime: "20x", checked: 5, sdk: sdkPlanFor(true),
		}
	}
	return plan{
		warm: time.Second, window: 5 * time.Second, rounds: 2,
		clients: []int{1, 8, 32}, inFlight: []int{1, 8, 32, 200}, goInFlight: []int{1, 200}, engine: 8 * time.Second,
		rates: []float64{25, 50, 100, 200, 400}, open: 15 * time.Second, grace: 10 * time.Second,
		overloadGrace: time.Minute, recovery: 5 * time.Second, settle: 5 * time.Second,
		shapes:   []string{"seq-1", "seq-3", "seq-10", "wide-50"},
		messages: 200, pause: pauses{50 * time.Millisecond}, hooks: 200, load: []int{1, 8, 32, 200},
		msgRates: []float64{100, 500},
		logSizes: []int{10, 1_000, 10_000}, logAppends: 1_000, stored: 1_000_000, idle: 30 * time.Second,
		waiting: []int{1_000, 1_000_000}, benchtime: "2s", checked: 100, sdk: sdkPlanFor(false),
	}
}
