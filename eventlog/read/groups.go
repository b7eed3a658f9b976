package read

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// MaxGroupedSteps is how many steps one page of [Log.StepGroups] sums up.
	MaxGroupedSteps = 10_000
	// MaxGroups is how many names it has.
	MaxGroups = 200
	// Buckets is the length of [StepGroup.Density].
	Buckets = 60
)

// StepGroup sums up the steps of a run that have one name.
type StepGroup struct {
	Name string
	// Count is the number of steps, Statuses that of each status, and Retried that of steps with several attempts.
	Count    int
	Statuses map[entities.StepStatus]int
	Retried  int
	// Median and Longest are durations of completed and failed steps, from the first attempt to the result. Slowest is
	// the step that took longest; empty if none has ended.
	Median, Longest time.Duration
	Slowest         entities.StepID
	// FirstAt is when the first step was created, LastAt when the last one ended; or now, while one has not.
	FirstAt, LastAt time.Time
	// Density is how many of the steps existed and had not ended in each of [Buckets] equal parts of that time.
	Density []int
}

// StepGroups is a page of step groups, in the order of their first steps.
type StepGroups struct {
	Groups []StepGroup
	// Steps is how many steps the page sums up, and Names how many names they have: more than Groups if there are more
	// than [MaxGroups].
	Steps, Names int
	// Cursor is that of the page with the steps that follow; empty if there are none.
	Cursor string
}

// groupedSteps selects the steps of a page. The step that a function made itself is recorded without a start, with the
// times of its execution in the event of the result. That is a look-up for these alone: with a join, Postgres would
// read all events of the run.
const groupedSteps = `
	SELECT name, id, status, attempt > 1 AS retried, created_seq, created_at, started_at, completed_at,
		CASE WHEN started_at IS NULL AND result_seq > 0 THEN (
			SELECT ARRAY[data->>'startedAt', data->>'endedAt']::timestamptz[] FROM events e
			WHERE e.run_id = s.run_id AND e.seq = s.result_seq) END AS recorded
	FROM steps s WHERE run_id = $1 AND created_seq > $2 ORDER BY created_seq LIMIT $3`

// StepGroups sums up the steps of a run that follow the cursor, [MaxGroupedSteps] at most. It fails with
// [entities.ErrInvalid] on an invalid cursor.
func (l *Log) StepGroups(ctx context.Context, run entities.Run, cursor string) (StepGroups, error) {
	after, err := parsePosition(cursor)
	if err != nil {
		return StepGroups{}, err
	}
	end := l.Now()
	if run.CompletedAt != nil {
		end = *run.CompletedAt
	}
	rows, err := l.pool.Query(ctx, groupedSteps, run.ID, after, MaxGroupedSteps+1)
	steps, next, err := pg.CollectPage(rows, err, MaxGroupedSteps, func(s groupedStep) string {
		return strconv.FormatInt(s.CreatedSeq, 10)
	})
	if err != nil {
		return StepGroups{}, fmt.Errorf("sum up steps of %s: %w", run.ID, err)
	}
	g := grouping{end: end, groups: map[string]*group{}}
	for _, s := range steps {
		g.add(s)
	}
	return StepGroups{Groups: g.result(), Steps: len(steps), Names: len(g.order), Cursor: next}, nil
}

// groupedStep is what a step adds to its group.
type groupedStep struct {
	Name                   string
	ID                     entities.StepID
	Status                 entities.StepStatus
	Retried                bool
	CreatedSeq             int64
	CreatedAt              time.Time
	StartedAt, CompletedAt *time.Time
	// Recorded are the start and the end that a function recorded; nil if it did not.
	Recorded []*time.Time
}

// recordedTimes returns the times that the function recorded, unless its clock is ahead of the server's.
func (s groupedStep) recordedTimes() (from, to time.Time, ok bool) {
	if len(s.Recorded) != 2 || s.Recorded[0] == nil || s.Recorded[1] == nil {
		return from, to, false
	}
	from, to = *s.Recorded[0], *s.Recorded[1]
	return from, to, s.CompletedAt != nil && !to.After(*s.CompletedAt) && !from.After(to)
}

// times returns when the step was created, when its first attempt began, and when it ended: at the given time if it has
// not. A child has no attempts; it begins at once.
func (s groupedStep) times(open time.Time) (created, began, ended time.Time) {
	if from, to, ok := s.recordedTimes(); ok {
		return from, from, to
	}
	began, ended = s.CreatedAt, open
	if s.StartedAt != nil {
		began = *s.StartedAt
	}
	if s.CompletedAt != nil {
		ended = *s.CompletedAt
	}
	return s.CreatedAt, began, later(s.CreatedAt, ended)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// grouping sums up steps.
type grouping struct {
	end    time.Time // of what has not ended
	groups map[string]*group
	order  []*group
}

// group is a step group with what its steps need until all are known.
type group struct {
	StepGroup

	took     []time.Duration
	from, to []time.Time
	isHidden bool // beyond MaxGroups
}

func (g *grouping) add(s groupedStep) {
	of := g.groups[s.Name]
	if of == nil {
		of = &group{isHidden: len(g.order) >= MaxGroups}
		of.Name, of.Statuses = s.Name, map[entities.StepStatus]int{}
		g.groups[s.Name], g.order = of, append(g.order, of)
	}
	of.Count++
	of.Statuses[s.Status]++
	if s.Retried {
		of.Retried++
	}
	if of.isHidden {
		return
	}
	from, began, to := s.times(g.end)
	if of.Count == 1 || from.Before(of.FirstAt) {
		of.FirstAt = from
	}
	of.LastAt = later(of.LastAt, to)
	of.from, of.to = append(of.from, from), append(of.to, to)
	if s.CompletedAt == nil {
		return
	}
	took := to.Sub(began)
	if len(of.took) == 0 || took > of.Longest {
		of.Longest, of.Slowest = took, s.ID
	}
	of.took = append(of.took, took)
}

func (g *grouping) result() []StepGroup {
	shown := g.order[:min(len(g.order), MaxGroups)]
	list := make([]StepGroup, len(shown))
	for i, of := range shown {
		if n := len(of.took); n > 0 {
			slices.Sort(of.took)
			of.Median = of.took[(n-1)/2]
		}
		of.Density = density(of.from, of.to, of.FirstAt, of.LastAt)
		list[i] = of.StepGroup
	}
	return list
}

// density counts the spans that touch each of [Buckets] equal parts of a time.
func density(from, to []time.Time, first, last time.Time) []int {
	counts := make([]int, Buckets+1)
	width := max(last.Sub(first), 1)
	bucket := func(t time.Time) int {
		return min(int(float64(t.Sub(first))/float64(width)*Buckets), Buckets-1)
	}
	for i := range from {
		counts[bucket(from[i])]++
		counts[bucket(to[i])+1]--
	}
	for i := 1; i < Buckets; i++ {
		counts[i] += counts[i-1]
	}
	return counts[:Buckets]
}
