package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// probedNames is in how many attributes a search looks for a value.
	probedNames = 100
	// countedNames is how many names of attributes or workflows a search reads.
	countedNames = 1000
	// recentRuns is of how many of the newest runs a search counts the attributes, to learn which are used.
	recentRuns = 500
	// maxFound is how many attributes and how many workflows a search finds.
	maxFound = 10
)

// Found is what a text means among the runs of a project.
type Found struct {
	// Key says that a run has the text as its unique key.
	Key bool
	// Attributes are those of which a run has the text as the value, the most used first; at most 10.
	Attributes []string
	// Workflows are those whose title or name has the text, the best match first; at most 10.
	Workflows []string
	// InAttributes and InWorkflows say among which the search looked.
	InAttributes, InWorkflows Searched
}

// Searched is how many names a search looked among.
type Searched struct {
	Searched, Of int
	// AtLeast says that counting stopped: there may be more than Of.
	AtLeast bool
}

// Search finds the runs that a text may mean, by their key, their attributes and their workflow. It looks for the text
// in 100 attributes at most: those that the newest runs have most often, then the others in their order. Attributes of
// the SDK, which begin with $, are left out. It fails with [entities.ErrInvalid] if no run could be called so.
func Search(ctx context.Context, q pg.Querier, project entities.Project, text string) (Found, error) {
	if err := entities.ValidateName("text", text); err != nil {
		return Found{}, err
	}
	rows, err := q.Query(ctx, skipScan(`runs`, `workflow_name`, `found.name`)+`
		SELECT name FROM found LIMIT $2`, project, countedNames+1)
	workflows, err := pg.CollectColumn[string](rows, err)
	if err != nil {
		return Found{}, pg.Wrap(err, "search workflows")
	}
	found, err := searchValue(ctx, q, project, text)
	if err != nil {
		return Found{}, pg.Wrap(err, "search attributes")
	}
	known := workflows[:min(len(workflows), countedNames)]
	return Found{
		Key: found.Key, Attributes: found.Attributes, InAttributes: found.Searched,
		Workflows: titled(known, text), InWorkflows: Searched{len(known), len(known), len(workflows) > len(known)},
	}, nil
}

// valueFound is where a text was found as a value.
type valueFound struct {
	Searched

	Key        bool
	Attributes []string
}

// searchValue finds the text as a key, or as the value of attributes.
func searchValue(ctx context.Context, q pg.Querier, project entities.Project, text string) (valueFound, error) {
	s := runSearch{Page: pg.Page{Descending: true}, project: project, args: pg.Args{project}}
	recent := s.runs(`attributes, created_at, id`, "", s.args.Add(recentRuns))
	value := s.args.Add(text)
	// All names of the SDK are one step: text that begins with $ is never greater than that with which the step ends.
	const after = `CASE WHEN starts_with(found.name, '$') THEN '$' || chr(1114111) ELSE found.name END`
	rows, err := q.Query(ctx, skipScan(`run_attributes`, `key`, after)+fmt.Sprintf(`,
		names AS (SELECT name FROM found WHERE NOT starts_with(name, '$') LIMIT %[1]d),
		used AS (
			SELECT key COLLATE "C" AS name, count(*) AS n
			FROM (%[2]s) recent CROSS JOIN LATERAL jsonb_object_keys(attributes) key
			WHERE NOT starts_with(key, '$') GROUP BY 1
		),
		known AS (SELECT name, coalesce(n, 0) AS n FROM names FULL JOIN used USING (name)),
		probed AS (SELECT name, n FROM known ORDER BY n DESC, name LIMIT %[3]d),
		hits AS (
			SELECT name, n FROM probed CROSS JOIN LATERAL (
				SELECT FROM run_attributes WHERE project = $1 AND key = probed.name AND value = %[4]s LIMIT 1
			) hit ORDER BY n DESC, name LIMIT %[5]d
		)
		SELECT EXISTS (SELECT FROM runs WHERE project = $1 AND unique_key <> '' AND unique_key = %[4]s) AS key,
			ARRAY(SELECT name FROM hits ORDER BY n DESC, name) AS attributes,
			(SELECT count(*) FROM probed) AS searched, (SELECT count(*) FROM known) AS of,
			(SELECT count(*) >= %[1]d FROM names) AS at_least`,
		countedNames+1, recent, probedNames, value, maxFound), s.args...)
	return pg.CollectOne[valueFound](rows, err, nil)
}

// skipScan returns a WITH clause: the table found has the distinct names in a column of the project $1, in their order,
// each read by one probe of an index. After is the name that the one after found.name exceeds.
func skipScan(table, column, after string) string {
	next := func(where string) string {
		return `SELECT ` + column + ` AS name FROM ` + table + ` WHERE project = $1` + where +
			` ORDER BY ` + column + ` LIMIT 1`
	}
	return fmt.Sprintf(`
		WITH RECURSIVE found AS (
			(%s) UNION ALL SELECT next.name FROM found CROSS JOIN LATERAL (%s) next
		)`, next(""), next(` AND `+column+` > `+after))
}

// titled returns the workflows whose title or name has the text, whatever its case: first those of which it is the
// title or the name, then those that begin with it.
func titled(workflows []string, text string) []string {
	text = strings.ToLower(text)
	rank := func(name string) int {
		title := strings.ToLower(entities.Title(name))
		switch {
		case title == text, strings.ToLower(name) == text:
			return 0
		case strings.HasPrefix(title, text):
			return 1
		case strings.Contains(title, text):
			return 2
		}
		return -1
	}
	found := slices.DeleteFunc(slices.Clone(workflows), func(name string) bool { return rank(name) < 0 })
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return found[:min(len(found), maxFound)]
}
