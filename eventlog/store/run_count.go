package store

import (
	"context"
	"fmt"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// maxCount is how far runs are counted.
const maxCount = 10_000

// RunCount is the number of runs that match a filter.
type RunCount struct {
	Count int
	// AtLeast says that counting stopped: more runs may match.
	AtLeast bool
}

// CountRuns counts the project's runs that match the filter. It reads 10,000 runs at most, and fewer for a filter by
// attributes: see [runSearch.byAttributes]. It fails with [entities.ErrInvalid] on an invalid filter.
func CountRuns(ctx context.Context, q pg.Querier, project entities.Project, f RunFilter) (RunCount, error) {
	if err := f.Validate(); err != nil {
		return RunCount{}, err
	}
	f.ByEnd = false
	s := runSearch{RunFilter: f, Page: pg.Page{Descending: true}, project: project}
	if err := s.begin(); err != nil {
		return RunCount{}, err
	}
	sql := s.count()
	rows, err := q.Query(ctx, sql, s.args...)
	count, err := pg.CollectOne[RunCount](rows, err, nil)
	return count, pg.Wrap(err, "count runs")
}

func (s *runSearch) count() string {
	if len(s.Attributes) > 0 {
		return fmt.Sprintf(`%s
			SELECT count(*) FILTER (WHERE hit%s) AS count, coalesce(max(n) = %d, false) AS at_least
			FROM (SELECT n, first, hit FROM leap WHERE n > 0) stood LEFT JOIN runs ON runs.id = stood.first`,
			s.leap(), s.residual(), maxLeaps)
	}
	columns := `created_at, id`
	if s.hasResidual() {
		columns = runColumns
	}
	return fmt.Sprintf(`
		SELECT least(count(*) FILTER (WHERE true%s), %[2]d) AS count, count(*) > %[2]d AS at_least FROM (%[3]s) scanned`,
		s.residual(), maxCount, s.runs(columns, s.place(), fmt.Sprint(maxCount+1)))
}
