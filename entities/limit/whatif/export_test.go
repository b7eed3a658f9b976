package whatif

// SimulateWithin is Simulate with another bound than maxLooks.
var SimulateWithin = simulate
