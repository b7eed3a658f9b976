package why

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// MaxNeeding is how many runs of each class a count explains, the newest.
	MaxNeeding = 1000
	// maxPages is how many pages of candidates are explained for a page of a list.
	maxPages = 3
)

// class is a class of runs in the order by need.
type class struct {
	// sources are where its candidates are; none if each run that has not ended is one.
	sources []string
	isStuck bool
	has     func(Explanation) bool
	// oldest says that those come first that wait longest.
	oldest bool
}

var (
	classes = map[Need]class{
		Stuck:    {sources: stuckSources, isStuck: true, has: func(e Explanation) bool { return e.Need() == Stuck }},
		Retrying: {sources: retryingSources, has: func(e Explanation) bool { return e.Need() == Retrying }},
		Waiting:  {has: func(e Explanation) bool { return e.Need() == Waiting }},
	}
	forPerson = class{sources: personSources, has: Explanation.needsPerson, oldest: true}
	allOpen   = class{has: func(e Explanation) bool { return e.Verdict != VerdictEnded }}
)

// needing lists runs of a project that match a filter and have not ended, each once.
type needing struct {
	pool    *pgxpool.Pool
	project entities.Project
	filter  store.RunFilter
	listed  map[entities.RunID]bool
}

// explain explains those runs that are not listed yet, in their order.
func (n needing) explain(ctx context.Context, runs []entities.Run) (list []Explanation, err error) {
	var ids []entities.RunID
	for _, r := range runs {
		if !n.listed[r.ID] {
			ids = append(ids, r.ID)
		}
	}
	explained, err := OfMany(ctx, n.pool, n.project, ids)
	for _, id := range ids {
		if e, ok := explained[id]; ok {
			list = append(list, e)
		}
	}
	return list, err
}

// list lists a page of a class.
func (n needing) list(ctx context.Context, of class, p pg.Page) (list []Explanation, next string, err error) {
	read, _, err := n.pages(ctx, of)
	if err != nil {
		return nil, "", err
	}
	for range maxPages {
		runs, after, err := read(ctx, p)
		if err != nil {
			return nil, "", err
		}
		explained, err := n.explain(ctx, runs)
		if err != nil {
			return nil, "", err
		}
		for i, e := range explained {
			if !of.has(e) {
				continue
			}
			if list, n.listed[e.Run.ID] = append(list, e), true; len(list) == p.Limit && i < len(explained)-1 {
				return list, store.RunCursor(e.Run), nil
			}
		}
		if p.Cursor = after; after == "" || len(list) == p.Limit {
			break
		}
	}
	return list, p.Cursor, nil
}

// candidates reads the newest runs that may be in a class, and whether there may be more.
func (n needing) candidates(ctx context.Context, of class) (runs []entities.Run, more bool, err error) {
	read, more, err := n.pages(ctx, of)
	if err != nil {
		return nil, false, err
	}
	runs, next, err := read(ctx, pg.Page{Limit: MaxNeeding, Descending: true})
	return runs, more || next != "", err
}

// ListNeeding reads a page of the project's runs that match the filter and have the need, by their creation, and the
// cursor of the next page; empty after the last page. Each is explained as by [OfMany].
//
// It looks at the newest 1,000 traces of each cause of being stuck or retrying. It explains three times as many runs
// as the page may have, so a page may be short, even empty, without being the last. It fails as [store.ListRuns]
// does.
func ListNeeding(
	ctx context.Context, pool *pgxpool.Pool, project entities.Project, need Need, f store.RunFilter, p pg.Page,
) ([]Explanation, string, error) {
	n := needing{pool, project, f, map[entities.RunID]bool{}}
	list, next, err := n.list(ctx, classes[need], p)
	return list, next, pg.Wrap(err, "list runs by need")
}

// ListByNeed reads those of the project's runs that match the filter and have not ended which need a person most, at
// most so many: first those that are stuck, then those that are retrying, then those that wait for somebody, the
// oldest first, and then the others. It looks at as many as [ListNeeding]. There is no second page: who is first
// changes all the time.
func ListByNeed(
	ctx context.Context, pool *pgxpool.Pool, project entities.Project, f store.RunFilter, most int,
) (list []Explanation, err error) {
	n := needing{pool, project, f, map[entities.RunID]bool{}}
	for _, of := range []class{classes[Stuck], classes[Retrying], forPerson, allOpen} {
		found, _, err := n.list(ctx, of, pg.Page{Limit: most, Descending: !of.oldest})
		if err != nil {
			return nil, pg.Wrap(err, "order runs by need")
		}
		if list = append(list, found...); len(list) >= most {
			return list[:most], nil
		}
	}
	return list, nil
}

// CountNeeding counts the runs that [ListNeeding] lists, of 1,000 that may be.
func CountNeeding(
	ctx context.Context, pool *pgxpool.Pool, project entities.Project, need Need, f store.RunFilter,
) (c store.RunCount, err error) {
	n := needing{pool: pool, project: project, filter: f}
	runs, more, err := n.candidates(ctx, classes[need])
	if err != nil {
		return c, pg.Wrap(err, "count runs by need")
	}
	explained, err := n.explain(ctx, runs)
	return store.RunCount{Count: numberOf(explained, need), AtLeast: more}, pg.Wrap(err, "count runs by need")
}

func numberOf(list []Explanation, need Need) int {
	return len(slices.DeleteFunc(slices.Clone(list), func(e Explanation) bool { return e.Need() != need }))
}

// CountNeeds counts the project's runs by need, among the newest 1,000 that have not ended, and as many that may be
// stuck or retrying.
func CountNeeds(ctx context.Context, pool *pgxpool.Pool, project entities.Project) (map[Need]store.RunCount, error) {
	n := needing{pool: pool, project: project, listed: map[entities.RunID]bool{}}
	counts := map[Need]store.RunCount{}
	var list []Explanation
	for _, need := range []Need{Waiting, Stuck, Retrying} {
		runs, more, err := n.candidates(ctx, classes[need])
		if err != nil {
			return nil, pg.Wrap(err, "count runs by need")
		}
		explained, err := n.explain(ctx, runs)
		if err != nil {
			return nil, pg.Wrap(err, "count runs by need")
		}
		for _, e := range explained {
			n.listed[e.Run.ID] = true
		}
		list = append(list, explained...)
		counts[need] = store.RunCount{AtLeast: more}
	}
	for _, need := range Needs() {
		counts[need] = store.RunCount{Count: numberOf(list, need), AtLeast: counts[need].AtLeast && counts[Waiting].AtLeast}
	}
	return counts, nil
}
