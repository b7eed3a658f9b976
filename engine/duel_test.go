package engine

import (
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
)

// duel is two servers that act on one run at the same time.
type duel struct {
	one, two *gate.Session
	// set prepares the run anew. Ask has the first (0) or the second server (1) act, or in place of the first one a server
	// (2) that has nothing of the run in its memory.
	set func()
	ask func(int)
	// run and errs are the run, and the servers' last errors.
	run  *runUnderWay
	errs [2]error
}

func (e pairing) duel(t *testing.T) *duel {
	t.Helper()
	dsn := testdb.New(t)
	home := idleServer(t, dsn)
	d := &duel{one: gate.Open(t, dsn, home.pool, nil), two: gate.Open(t, dsn, home.pool, nil)}
	servers := [3]*cachingServer{
		cachingServerOn(t, d.one, home), cachingServerOn(t, d.two, home), cachingServerOn(t, d.one, home),
	}
	d.set = func() {
		d.run = e.prepare(servers[0], t, home)
		for _, s := range servers {
			s.Attach(s.worker)
		}
	}
	d.ask = func(i int) { d.errs[i%2] = [3]serverAction{e.one, e.two, e.one}[i](t.Context(), servers[i], d.run) }
	return d
}

// alone prepares the run, and returns the statements of the first server if it acts alone.
func (d *duel) alone(t *testing.T) []string {
	t.Helper()
	d.set()
	return d.one.Run(t, -1, gate.None, func() { d.ask(0) })
}

// after prepares the run, has two servers act one after the other, and returns the state.
func (d *duel) after(t *testing.T, first, second int) string {
	t.Helper()
	d.set()
	d.ask(first)
	d.ask(second)
	return d.run.state(t, d.errs)
}

// play prepares the run, has both servers act by the schedule, and returns the state.
func (d *duel) play(t *testing.T, schedule *gate.Schedule) string {
	t.Helper()
	d.set()
	schedule.Run(t, func() { d.ask(0) }, func() { d.ask(1) })
	return d.run.state(t, d.errs)
}
