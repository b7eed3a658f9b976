// Package live sends viewers what happens to runs: the last state of each run that changed, and the new events of a run
// that they follow. However many viewers of a project there are, one follower in each process reads for all of them.
//
// Whatever a viewer is sent may be sent twice, or late, after a newer state. So a viewer keeps of each run the state
// with the highest position, and then shows what a new read would show.
package live
