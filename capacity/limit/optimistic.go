package limit

import (
	"strconv"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// OptimisticStart is a run with limits that a conditional statement creates. Either it takes its slots in that
// statement, which so needs no pass, or it waits from the beginning, which needs no lock.
type OptimisticStart struct {
	Start

	// Policy is the policy of the workflow that gave the run its limits; nil if it has none.
	Policy *Policy
}

// mostCounted is how many slots a start finds taken at most that takes one itself. With more, counting costs a start
// about as much as a pass does, which counts once for many.
const mostCounted = 5000

// Take has the run get its slots. The statement depends on that the policy is what it was, and that the run could go
// now: all limits have room, and nobody waits for them. It also depends on the locks of the limits, for which it does
// not wait. What fails at that may be a start that has to wait, to be refused, or to cancel others.
//
// A limit with a rate, or whose tenants take turns, has clocks, and leaves the decision to a pass.
func (s OptimisticStart) Take(c *pg.Conditional, project entities.Project, workflow string) {
	names, _, _, _ := columnsOf(s.Uses)
	c.Earlier(tryLocks, s.RunID, project, names)
	c.Require(`current_setting('stepwell.slots', true) = $1::text`, s.RunID)
	s.RequirePolicy(c, project, workflow)
	requireNone(c, project, s.Uses, `l.name IS NULL OR l.paused OR l.rate > 0 OR l.fair
		OR EXISTS (SELECT FROM permits w WHERE w.project = l.project AND w.name = u.name AND w.key = u.key
			AND w.granted_at IS NULL)
		OR l.total > 0 AND EXISTS (SELECT FROM permits w WHERE w.project = l.project AND w.name = u.name
			AND w.granted_at IS NULL)
		OR l.per_key > 0 AND u.cost + `+heldBy(`h.key = u.key`)+` > least(l.per_key, `+strconv.Itoa(mostCounted)+`)
		OR l.total > 0 AND u.cost + `+heldBy(`true`)+` > least(l.total, `+strconv.Itoa(mostCounted)+`)`)
	s.insert(c, project, true, nil)
}

// tryLocks locks the limits $3 of project $2 if nobody else has locked one of them. Then it sets stepwell.slots to the
// run $1, for the statements of the same transaction that come after it. Their snapshots are from after the locks were
// obtained, so they count every grant that there was.
const tryLocks = `
	SELECT set_config('stepwell.slots', $1, true)
	FROM (SELECT count(*) AS n FROM (
		SELECT FROM limits WHERE project = $2 AND name = ANY ($3) ORDER BY name FOR NO KEY UPDATE SKIP LOCKED) AS l) AS locked
	WHERE n = cardinality($3::text[])`

// heldBy counts what those hold of the limit l for which a condition on their permits h holds, up to mostCounted.
func heldBy(condition string) string {
	return `(SELECT coalesce(sum(cost), 0) FROM (SELECT cost FROM permits h
		WHERE h.project = l.project AND h.name = l.name AND ` + condition + ` AND h.granted_at IS NOT NULL
		LIMIT ` + strconv.Itoa(mostCounted) + `) AS h)`
}

// Wait has the run wait for a pass. The statement depends on that the policy is what it was, and that all limits exist,
// have a start wait that finds no slot, and can ever have room for the run.
func (s OptimisticStart) Wait(c *pg.Conditional, project entities.Project, workflow string) {
	s.RequirePolicy(c, project, workflow)
	requireNone(c, project, s.Uses, `l.name IS NULL OR l.on_full <> 'wait' OR `+tooSmall)
	s.insert(c, project, false, nil)
}

// RequirePolicy makes the statement depend on that the policy is what it was, for a run of which only steps have
// limits.
func (s OptimisticStart) RequirePolicy(c *pg.Conditional, project entities.Project, workflow string) {
	if s.Policy == nil {
		RequireNoPolicy(c, project, workflow)
		return
	}
	c.Require(`EXISTS (SELECT FROM policies
		WHERE project = $1::text AND workflow = $2::text AND limits = $3::jsonb AND priority = $4::interval
			AND steps IS NOT DISTINCT FROM $5::jsonb)`,
		project, workflow, s.Policy.Limits, s.Policy.Priority, s.Policy.Steps)
}
