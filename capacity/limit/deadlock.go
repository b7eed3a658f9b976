package limit

import (
	"context"
	"slices"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// maxSearched is how many permits that wait, permits that are held, and runs with their open steps a search for
// deadlocks considers. With more of one of them it finds nothing.
const maxSearched = 10_000

// Waits is what waits for slots in a project, and what the runs that hold them wait for.
type Waits struct {
	Limits map[string]Limit
	// Waiting are the permits that wait, and Held those that hold slots of the same limits.
	Waiting, Held []HeldBy
	// Runs are the runs that hold slots of these limits, and their open descendants.
	Runs map[entities.RunID]Dependence
}

// HeldBy is a permit with its holder: a run, or the message of a step.
type HeldBy struct {
	Holder    string
	RunID     entities.RunID
	MessageID string
	Name, Key string
	Cost      int
}

// Dependence is what a run waits for.
type Dependence struct {
	// On has, for each open step, its child run or its message; empty if it has neither.
	On []string
	// Moves is set if something else may move the run: a call, a hook, a wait, its deadline, or the app that continues
	// it.
	Moves bool
}

// Deadlocks are the holders of permits, and the runs, that wait for each other for ever.
type Deadlocks struct {
	Waits

	dead map[string]bool
	// awaited has what each holder waits for; held and ofRun have what runs hold, by bucket and by run.
	awaited map[string][]HeldBy
	held    map[Bucket][]HeldBy
	ofRun   map[string][]HeldBy
	// withKey and all are how many slots the dead hold, with a key and with all keys.
	withKey map[Bucket]int
	all     map[string]int
}

// FindDeadlocks finds what can never go on unless somebody ends a run: a holder that waits for a slot of which all are
// held by runs that wait as well. It is pure. Something is dead as long as nothing says that it lives, so the result is
// the largest set in which each waits for others of the set only.
func FindDeadlocks(w Waits) Deadlocks {
	d := Deadlocks{
		Waits: w, dead: map[string]bool{}, awaited: map[string][]HeldBy{}, held: map[Bucket][]HeldBy{},
		ofRun: map[string][]HeldBy{}, withKey: map[Bucket]int{}, all: map[string]int{},
	}
	for _, p := range w.Waiting {
		d.dead[p.Holder] = true
		d.awaited[p.Holder] = append(d.awaited[p.Holder], p)
	}
	for id := range w.Runs {
		d.dead[string(id)] = true
	}
	for _, h := range w.Held {
		if h.MessageID == "" && d.dead[h.Holder] { // an attempt at a step goes on
			d.held[h.bucket()] = append(d.held[h.bucket()], h)
			d.ofRun[h.Holder] = append(d.ofRun[h.Holder], h)
			d.take(h, 1)
		}
	}
	for changed := true; changed; {
		changed = false
		for node := range d.dead {
			if d.lives(node) {
				d.revive(node)
				changed = true
			}
		}
	}
	return d
}

func (p HeldBy) bucket() Bucket { return Bucket{p.Name, p.Key} }

// take counts the slots of a permit, n times.
func (d Deadlocks) take(h HeldBy, n int) {
	d.withKey[h.bucket()] += n * h.Cost
	d.all[h.Name] += n * h.Cost
}

// revive takes a node, and the slots that it holds, from the dead.
func (d Deadlocks) revive(node string) {
	delete(d.dead, node)
	for _, h := range d.ofRun[node] {
		d.take(h, -1)
	}
}

// lives reports whether a node goes on as far as is known: nothing holds it up for ever.
func (d Deadlocks) lives(node string) bool {
	if run, ok := d.Runs[entities.RunID(node)]; ok && len(d.awaited[node]) == 0 {
		return run.Moves || len(run.On) == 0 || slices.ContainsFunc(run.On, func(on string) bool { return !d.dead[on] })
	}
	return !slices.ContainsFunc(d.awaited[node], d.blocked)
}

// blocked reports whether a slot is full for ever: those that are dead leave no room for the permit.
func (d Deadlocks) blocked(p HeldBy) bool {
	l := d.Limits[p.Name]
	return l.PerKey > 0 && d.withKey[p.bucket()]+p.Cost > l.PerKey || l.Total > 0 && d.all[p.Name]+p.Cost > l.Total
}

// DeadRuns returns the runs that are dead, in order: those that hold slots, and those that wait.
func (d Deadlocks) DeadRuns() []entities.RunID {
	var runs []entities.RunID
	for _, p := range slices.Concat(d.Waiting, d.Held) {
		if d.dead[p.Holder] {
			runs = append(runs, p.RunID)
		}
	}
	slices.Sort(runs)
	return slices.Compact(runs)
}

// Circle returns the runs that keep the permit of the holder from being granted, each waiting for the next one, and the
// last one for one of those before it. It is empty if the holder is not dead.
func (d Deadlocks) Circle(holder string) []entities.RunID {
	var circle []entities.RunID
	for d.dead[holder] {
		p, ok := d.deadHolder(holder)
		if !ok || slices.Contains(circle, p.RunID) {
			break
		}
		circle = append(circle, p.RunID)
		if holder = d.waiterBelow(string(p.RunID)); holder == "" {
			break
		}
	}
	return circle
}

// deadHolder returns a dead run that holds a slot which the holder waits for.
func (d Deadlocks) deadHolder(holder string) (HeldBy, bool) {
	for _, p := range d.awaited[holder] {
		if !d.blocked(p) {
			continue
		}
		for _, h := range d.held[p.bucket()] {
			if d.dead[h.Holder] {
				return h, true
			}
		}
		for _, h := range d.Held { // all keys together
			if h.Name == p.Name && h.MessageID == "" && d.dead[h.Holder] {
				return h, true
			}
		}
	}
	return HeldBy{}, false
}

// waiterBelow returns the holder of a waiting permit on which a run depends, through its steps and its children.
func (d Deadlocks) waiterBelow(node string) string {
	for seen := map[string]bool{}; !seen[node]; {
		if len(d.awaited[node]) > 0 {
			return node
		}
		seen[node] = true
		on := d.Runs[entities.RunID(node)].On
		if len(on) == 0 {
			return ""
		}
		node = on[0]
	}
	return ""
}

// forEver is the condition that the permit p waits for nothing but a slot: for no pause, and for no deadline of its
// own or of its run.
const forEver = `until IS NULL AND (not_before IS NULL OR not_before <= now())
	AND NOT EXISTS (SELECT FROM runs r WHERE r.id = p.run_id AND r.deadline IS NOT NULL)`

// ReadDeadlocks finds the deadlocks in a project, as they are in the querier's snapshot. Where there is too much to
// search, it finds none.
func ReadDeadlocks(ctx context.Context, q pg.Querier, project entities.Project) (Deadlocks, error) {
	w := Waits{Limits: map[string]Limit{}, Runs: map[entities.RunID]Dependence{}}
	const of = `SELECT holder, run_id, coalesce(message_id, '') AS message_id, name, key, cost FROM permits p
		WHERE project = $1`
	var err error
	if w.Waiting, err = pg.CollectAll[HeldBy](q.Query(ctx,
		of+` AND granted_at IS NULL AND `+forEver+` ORDER BY name, key, rank_at LIMIT $2`, project, maxSearched+1,
	)); err != nil {
		return Deadlocks{}, pg.Wrap(err, "read what waits for limits")
	}
	if len(w.Waiting) == 0 || len(w.Waiting) > maxSearched {
		return FindDeadlocks(Waits{}), nil
	}
	var names []string
	for _, p := range w.Waiting {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	settings, err := pg.CollectAll[Limit](q.Query(ctx,
		`SELECT `+columns+` FROM limits WHERE project = $1 AND name = ANY ($2)`, project, names))
	if err != nil {
		return Deadlocks{}, pg.Wrap(err, "read limits")
	}
	for _, l := range settings {
		w.Limits[l.Name] = l
	}
	if w.Held, err = pg.CollectAll[HeldBy](q.Query(ctx,
		of+` AND granted_at IS NOT NULL AND name = ANY ($2) LIMIT $3`, project, names, maxSearched+1)); err != nil {
		return Deadlocks{}, pg.Wrap(err, "read what holds slots of limits")
	}
	if len(w.Held) > maxSearched {
		return FindDeadlocks(Waits{}), nil
	}
	if all, err := w.readRuns(ctx, q); err != nil || !all {
		return FindDeadlocks(Waits{}), err
	}
	return FindDeadlocks(w), nil
}

// readRuns reads what the runs wait for that hold slots, and reports whether that was all.
func (w *Waits) readRuns(ctx context.Context, q pg.Querier) (all bool, err error) {
	var holders []entities.RunID
	for _, h := range w.Held {
		if h.MessageID == "" {
			holders = append(holders, h.RunID)
		}
	}
	type dependence struct {
		ID    entities.RunID
		On    *string
		Moves bool
	}
	found, err := pg.CollectAll[dependence](q.Query(ctx, `
		WITH RECURSIVE tree AS (
			SELECT id, driver, deadline FROM runs WHERE id = ANY ($1) AND completed_at IS NULL
			UNION
			SELECT c.id, c.driver, c.deadline FROM tree JOIN runs c ON c.parent_id = tree.id AND c.parent_id <> ''
			WHERE c.completed_at IS NULL AND c.started_at IS NOT NULL
		)
		SELECT tree.id, coalesce(
				(SELECT c.id FROM runs c WHERE c.parent_id = tree.id AND c.parent_id <> '' AND c.parent_step = s.id
					AND c.completed_at IS NULL LIMIT 1),
				(SELECT m.id FROM messages m WHERE m.run_id = tree.id AND m.work = 'step' AND m.subject = s.id)) AS "on",
			tree.driver = '' OR tree.deadline IS NOT NULL OR EXISTS (SELECT FROM hooks h WHERE h.run_id = tree.id)
				OR EXISTS (SELECT FROM waits v WHERE v.run_id = tree.id AND v.status = 'waiting')
				OR EXISTS (SELECT FROM messages m WHERE m.run_id = tree.id AND m.work = 'run') AS moves
		FROM (SELECT * FROM tree LIMIT $2) AS tree LEFT JOIN steps s ON s.run_id = tree.id AND s.completed_at IS NULL
		LIMIT $2`, holders, maxSearched+1))
	for _, f := range found {
		d := w.Runs[f.ID]
		d.Moves = d.Moves || f.Moves
		if f.On != nil {
			d.On = append(d.On, *f.On)
		}
		w.Runs[f.ID] = d
	}
	return len(found) <= maxSearched, pg.Wrap(err, "read what runs wait for that hold slots of limits")
}
