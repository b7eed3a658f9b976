package stats

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// Group is by what counts of runs are told apart.
type Group string

// The groups.
const (
	Together     Group = ""
	ByWorkflow   Group = "workflow"
	ByDeployment Group = "deployment"
)

// Query selects counts of a project.
type Query struct {
	Project entities.Project
	// From is inclusive, To is not. From is rounded down to a whole interval that is counted: for a minute, an hour, 6
	// hours or a day.
	From, To time.Time
	// Workflow is the name of the only workflow to count; empty for all.
	Workflow string
}

// maxPoints limits the intervals of a series.
const maxPoints = 400

// steps are the lengths that an interval of a series may have, each with the age up to which counts are that fine.
var steps = map[time.Duration]time.Duration{
	time.Minute:      2 * day,
	5 * time.Minute:  2 * day,
	15 * time.Minute: 2 * day,
	time.Hour:        90 * day,
	6 * time.Hour:    90 * day,
	day:              1 << 62,
}

const day = 24 * time.Hour

func (q Query) validate() error {
	if !q.From.Before(q.To) {
		return entities.Invalid("the time window ends before it starts: let from be earlier than to")
	}
	return nil
}

// Point is what happened in one interval.
type Point struct {
	At                                             time.Time
	Created, Started, Completed, Failed, Cancelled int64
	// Took is the time from the creation of the runs to their end, and Delay that to their start; nil if none ended or
	// started.
	Took, Delay *Percentiles
}

// Series are the points of one group, in order of time. Intervals in which nothing happened have no point.
type Series struct {
	// Name is that of the workflow or the deployment; empty for all together.
	Name   string
	Points []Point
	// Total is what happened in the whole window.
	Total Point
}

// Reader reads what a [Follower] has counted.
type Reader struct {
	pool pg.Pool
	now  func() time.Time
}

// NewReader returns a reader of the pool's database.
func NewReader(pool *pgxpool.Pool, now func() time.Time) *Reader {
	return &Reader{pg.NewPool(pool), now}
}

// progress is how far the events of a project are counted.
type progress struct {
	// Behind says that there are events that are not counted.
	Behind bool
	// CompleteTo is the time of the last event that is counted.
	CompleteTo time.Time
}

// readProgress returns how far the project's events of transactions before the given one are counted.
func readProgress(ctx context.Context, q pg.Querier, project entities.Project, before string) (progress, error) {
	rows, err := q.Query(ctx, progressOf, project, countedTypes, before)
	p, err := pg.CollectOne[progress](rows, err, pgx.ErrNoRows)
	if err != nil {
		return progress{}, fmt.Errorf("read how far events are counted: %w", err)
	}
	return p, nil
}

// CompleteTo returns the time up to which the project's events are counted: now, if there are no others.
func (r *Reader) CompleteTo(ctx context.Context, project entities.Project) (time.Time, error) {
	p, err := readProgress(ctx, r.pool, project, noXID)
	if err == nil && !p.Behind {
		p.CompleteTo = r.now()
	}
	return p.CompleteTo, err
}

// Runs returns how many runs were created, started and ended in each step of the window. It fails with
// [entities.ErrInvalid], also if the counts of the time from are not that fine any more.
func (r *Reader) Runs(ctx context.Context, q Query, step time.Duration, by Group) ([]Series, error) {
	if err := r.validateSteps(q, step); err != nil {
		return nil, err
	}
	column, ok := map[Group]string{Together: `''`, ByWorkflow: `workflow`, ByDeployment: `label`}[by]
	if !ok {
		return nil, entities.Invalid("%q is not a group: leave it out, or use workflow or deployment", by)
	}
	width := widthOf(step)
	rows, err := r.pool.Query(ctx, `
		SELECT `+column+` AS name, date_bin($4, at, 'epoch') AS at, metric, took, sum(count)::bigint AS count
		FROM stats
		WHERE project = $1 AND width = $7 AND metric = ANY ($5) AND at >= $2 AND at < $3 AND ($6 = '' OR workflow = $6)
		GROUP BY 1, 2, 3, 4 ORDER BY 1, 2`,
		q.Project, startOf(q.From, width), q.To, step, countedTypes[:5], q.Workflow, width.Minutes())
	counts, err := pg.CollectAll[count](rows, err)
	if err != nil {
		return nil, fmt.Errorf("read the counts of runs: %w", err)
	}
	return newSeries(counts), nil
}

// widthOf returns the largest width of which the step is a multiple.
func widthOf(step time.Duration) time.Duration {
	for _, width := range []time.Duration{day, 6 * time.Hour, time.Hour} {
		if step%width == 0 {
			return width
		}
	}
	return time.Minute
}

// startOf returns the start of the interval that has the time. Windows begin with a whole interval.
func startOf(at time.Time, width time.Duration) time.Time { return at.UTC().Truncate(width) }

func (r *Reader) validateSteps(q Query, step time.Duration) error {
	if err := q.validate(); err != nil {
		return err
	}
	age, ok := steps[step]
	switch {
	case !ok:
		return entities.Invalid("a step of %s is not offered: use 1m, 5m, 15m, 1h, 6h or 24h", step)
	case r.now().Sub(q.From) > age+time.Hour:
		return entities.Invalid("minutes are kept for 2 days and hours for 90 days: use a longer step, or a later from")
	case q.To.Sub(q.From) > maxPoints*step:
		return entities.Invalid("the window has more than %d steps: use a longer step, or a shorter window", maxPoints)
	}
	return nil
}

// count is how often something happened in an interval, by its duration.
type count struct {
	Name   string
	At     time.Time
	Metric string
	Took   int16
	Count  int64
}

// newSeries adds up counts that are ordered by name and time.
func newSeries(counts []count) []Series {
	series := []Series{}
	for len(counts) > 0 {
		s, all := Series{Name: counts[0].Name}, counts
		for len(counts) > 0 && counts[0].Name == s.Name {
			n := 1
			for n < len(counts) && counts[n].Name == s.Name && counts[n].At.Equal(counts[0].At) {
				n++
			}
			s.Points = append(s.Points, newPoint(counts[:n]))
			counts = counts[n:]
		}
		s.Total = newPoint(all[:len(all)-len(counts)])
		series = append(series, s)
	}
	return series
}

// newPoint adds up the counts of one interval.
func newPoint(counts []count) Point {
	p := Point{At: counts[0].At.UTC()}
	took, delay := histogram{}, histogram{}
	for _, c := range counts {
		switch entities.EventType(c.Metric) { //nolint:exhaustive // the other events are not counted by run
		case entities.EventRunCreated:
			p.Created += c.Count
		case entities.EventRunStarted:
			p.Started += c.Count
			delay[c.Took] += c.Count
		case entities.EventRunCompleted:
			p.Completed += c.Count
			took[c.Took] += c.Count
		case entities.EventRunFailed:
			p.Failed += c.Count
			took[c.Took] += c.Count
		case entities.EventRunCancelled:
			p.Cancelled += c.Count
			took[c.Took] += c.Count
		}
	}
	p.Took, p.Delay = took.percentiles(), delay.percentiles()
	return p
}

// Step is what happened to the steps of one name in a workflow.
type Step struct {
	Workflow, Name string
	// Retried counts the attempts that were followed by another one.
	Completed, Failed, Cancelled, Retried int64
	// Took is the time from the creation of the steps to their end, with all attempts; nil if none ended.
	Took *Percentiles
}

// Steps returns what happened to the steps in the window, by workflow and name. It fails with [entities.ErrInvalid].
func (r *Reader) Steps(ctx context.Context, q Query) ([]Step, error) {
	counts, err := r.labelled(ctx, q, []string{
		string(entities.EventStepCompleted), string(entities.EventStepFailed), string(entities.EventStepRetrying),
		stepCancelled,
	})
	if err != nil {
		return nil, fmt.Errorf("read the counts of steps: %w", err)
	}
	list := []Step{}
	var took histogram
	for i, c := range counts {
		if i == 0 || c.Workflow != counts[i-1].Workflow || c.Label != counts[i-1].Label {
			list, took = append(list, Step{Workflow: c.Workflow, Name: c.Label}), histogram{}
		}
		s := &list[len(list)-1]
		switch c.Metric {
		case string(entities.EventStepCompleted):
			s.Completed += c.Count
		case string(entities.EventStepFailed):
			s.Failed += c.Count
		case stepCancelled:
			s.Cancelled += c.Count
		case string(entities.EventStepRetrying):
			s.Retried += c.Count
		}
		if c.Took > 0 {
			took[c.Took] += c.Count
			s.Took = took.percentiles()
		}
	}
	return list, nil
}

// Failures counts the runs of a workflow that failed with a code.
type Failures struct {
	Workflow string
	// Code is that of the run's error; empty if the error had none.
	Code  string
	Count int64
}

// Failures returns how many runs failed in the window, by workflow and code. It fails with [entities.ErrInvalid].
func (r *Reader) Failures(ctx context.Context, q Query) ([]Failures, error) {
	counts, err := r.labelled(ctx, q, []string{runError})
	if err != nil {
		return nil, fmt.Errorf("read the counts of failures: %w", err)
	}
	list := []Failures{}
	for _, c := range counts {
		list = append(list, Failures{c.Workflow, c.Label, c.Count})
	}
	return list, nil
}

// RecentFailures are the runs of a workflow that failed in the last hour, compared with the days before.
type RecentFailures struct {
	Workflow string
	LastHour int64
	// Usual is the largest number in an hour at this time of the day, within an hour, on the last seven days.
	Usual int64
}

// usualDays is how many days [Reader.RecentFailures] looks back.
const usualDays = 7

// RecentFailures returns the workflows of which runs failed in the last hour, ordered by name.
func (r *Reader) RecentFailures(ctx context.Context, project entities.Project) ([]RecentFailures, error) {
	now := r.now().UTC()
	since := now.Truncate(time.Minute).Add(-59 * time.Minute)
	rows, err := r.pool.Query(ctx, recentFailures, project, since, usualHours(now))
	list, err := pg.CollectAll[RecentFailures](rows, err)
	if err != nil {
		return nil, fmt.Errorf("read recent failures: %w", err)
	}
	return list, nil
}

// usualHours returns the two hours around this time of the day on each of the days before.
func usualHours(now time.Time) (hours []time.Time) {
	for d := range usualDays {
		hour := now.Truncate(time.Hour).Add(-time.Duration(d+1) * day)
		hours = append(hours, hour.Add(-time.Hour), hour)
	}
	return hours
}

// labelledCount is how often something happened in a window.
type labelledCount struct {
	Workflow, Label, Metric string
	Took                    int16
	Count                   int64
}

// finest returns the least width that reads few rows of the window, and is kept for so long.
func (r *Reader) finest(q Query) time.Duration {
	const few = 100
	for _, width := range []time.Duration{time.Minute, time.Hour, 6 * time.Hour} {
		if q.To.Sub(q.From) <= few*width && r.now().Sub(q.From) <= steps[width] {
			return width
		}
	}
	return day
}

// labelled sums the metrics in the window, ordered by workflow and label.
func (r *Reader) labelled(ctx context.Context, q Query, metrics []string) ([]labelledCount, error) {
	if err := q.validate(); err != nil {
		return nil, err
	}
	width := r.finest(q)
	rows, err := r.pool.Query(ctx, `
		SELECT workflow, label, metric, took, sum(count)::bigint AS count
		FROM stats
		WHERE project = $1 AND width = $6 AND metric = ANY ($4) AND at >= $2 AND at < $3 AND ($5 = '' OR workflow = $5)
		GROUP BY 1, 2, 3, 4 ORDER BY 1, 2`,
		q.Project, startOf(q.From, width), q.To, metrics, q.Workflow, width.Minutes())
	return pg.CollectAll[labelledCount](rows, err)
}
