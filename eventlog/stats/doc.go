// Package stats counts what happens in the runs of a project: how many started, ended and failed in each minute, and
// how long they and their steps took. Dashboards read the counts in place of the log.
//
// The counts are a fold of the project's events. [Follower] reads the events in the order of their transactions, as
// every reader of a project's events does, and adds them up in the transaction that records how far it has read. So no
// event is missed or counted twice, however late a transaction commits and wherever a process dies, and several
// processes may follow one database.
//
// Durations are counted in classes whose bounds are powers of √2 ms. A percentile is therefore exact to ±19 %, and the
// counts of several minutes, workflows or servers add up. Each event is counted in its minute, its hour, its quarter of
// a day and its day, so that a long window reads few rows. Minutes are kept for two days, hours for 90. Retention
// deletes runs and keeps the counts.
package stats
