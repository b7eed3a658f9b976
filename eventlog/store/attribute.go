package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// WriteAttributes adds the writes that turn the attribute rows of before into those of after; none if they are the
// same. Before is nil for a new run. The rows repeat the attributes in the run's own row, because indexes on them make
// lists by attribute fast.
func WriteAttributes(w pg.Writer, before, after *entities.Run) {
	var had map[string]string
	if before != nil {
		had = before.Attributes
	}
	var keys, values []string
	for _, key := range sortedKeys(after.Attributes) {
		if old, ok := had[key]; !ok || old != after.Attributes[key] {
			keys, values = append(keys, key), append(values, after.Attributes[key])
		}
	}
	if len(keys) > 0 {
		w.Add(pg.Write{SQL: `
			INSERT INTO run_attributes (` + attributeColumns + `)
			SELECT $1::text, key, value, $4::text, $5::text, $6::timestamptz
			FROM unnest($2::text[], $3::text[]) AS given (key, value) WHERE true`,
			Rest: ` ON CONFLICT (run_id, key) DO UPDATE SET value = excluded.value`,
			Args: []any{after.ID, keys, values, after.Project, after.WorkflowName, after.CreatedAt},
		})
	}
	deleteKeys(w, `run_attributes`, after.ID, had, after.Attributes)
}

// deleteKeys adds the deletion of a run's rows in a table, of those keys that only before has.
func deleteKeys[V any](w pg.Writer, table string, runID entities.RunID, before, after map[string]V) {
	removed := slices.DeleteFunc(sortedKeys(before), func(key string) bool {
		_, ok := after[key]
		return ok
	})
	if len(removed) > 0 {
		w.Add(pg.Write{SQL: `DELETE FROM ` + table + ` WHERE run_id = $1 AND key = ANY($2)`, Args: []any{runID, removed}})
	}
}

// RunAttribute is a row of table run_attributes: an attribute of a run, with the run's columns that lists need.
type RunAttribute struct {
	RunID        entities.RunID
	Key          string
	Value        string
	Project      entities.Project
	WorkflowName string
	CreatedAt    time.Time
}

const attributeColumns = `run_id, key, value, project, workflow_name, created_at`

// RunAttributes returns the rows that a run's attributes must have, by key.
func RunAttributes(r *entities.Run) map[string]RunAttribute {
	rows := make(map[string]RunAttribute, len(r.Attributes))
	for key, value := range r.Attributes {
		rows[key] = RunAttribute{r.ID, key, value, r.Project, r.WorkflowName, r.CreatedAt}
	}
	return rows
}

// InsertAttribute adds the insertion of an attribute's row.
func InsertAttribute(w pg.Writer, a *RunAttribute) {
	w.Add(pg.Write{What: "insert attribute", SQL: `
		INSERT INTO run_attributes (` + attributeColumns + `)
		SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::timestamptz WHERE true`,
		Args: []any{a.RunID, a.Key, a.Value, a.Project, a.WorkflowName, a.CreatedAt},
	})
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// AttributeKey summarizes the runs that have an attribute.
type AttributeKey struct {
	Key string
	// Runs is the number of runs that have it; 10,000 means that many or more.
	Runs int
	// FirstSeen and LastSeen are the creation times of the oldest and the newest of these runs.
	FirstSeen time.Time
	LastSeen  time.Time
}

// maxKeyRuns bounds the count of an attribute's runs.
const maxKeyRuns = 10_000

// KeyFilter restricts a list of attributes to those of some runs; empty fields match everything.
type KeyFilter struct {
	WorkflowName string
	Created      Window
}

const keyCursorPrefix = "key:"

// ListAttributeKeys reads a page of the attributes that the project's runs have, in byte order of their keys, and the
// cursor of the next page; empty after the last page. It fails with [entities.ErrInvalid] on an invalid filter, and
// with a [pg.CursorError] on a cursor of another list.
func ListAttributeKeys(
	ctx context.Context, q pg.Querier, project entities.Project, f KeyFilter, p pg.Page,
) ([]AttributeKey, string, error) {
	if err := f.Created.validate(); err != nil {
		return nil, "", err
	}
	from := ""
	if p.Cursor != "" {
		var ok bool
		if from, ok = strings.CutPrefix(p.Cursor, keyCursorPrefix); !ok || from == "" {
			return nil, "", pg.BadCursor(p.Cursor)
		}
	}
	var a pg.Args
	rows, err := q.Query(ctx, f.query(&a, project, from, p), a...)
	keys, next, err := pg.CollectPage(rows, err, p.Limit, func(k AttributeKey) string { return keyCursorPrefix + k.Key })
	return keys, next, pg.Wrap(err, "list attributes")
}

// query finds the keys by a skip scan, which Postgres does not do by itself: a recursive query reads the next greater
// key from the index, whatever the number of rows between. Of each key it reads the oldest and the newest row, and
// counts at most maxKeyRuns. The list begins after the key from; empty for the first page.
func (f KeyFilter) query(a *pg.Args, project entities.Project, from string, p pg.Page) string {
	table := `run_attributes WHERE project = ` + a.Add(project)
	if f.WorkflowName != "" {
		table += ` AND workflow_name = ` + a.Add(f.WorkflowName)
	}
	keyword, after := p.Order()
	next := func(from string) string {
		if from != "" {
			from = ` AND key ` + after + ` ` + from
		}
		return `SELECT key FROM ` + table + from + ` ORDER BY key ` + keyword + ` LIMIT 1`
	}
	first := ""
	if from != "" {
		first = a.Add(from)
	}
	of := table + ` AND key = found.key` + f.Created.conditions(`created_at`, a)
	end := func(order string) string {
		return `SELECT created_at FROM ` + of + ` ORDER BY created_at ` + order + ` LIMIT 1`
	}
	return fmt.Sprintf(`
		WITH RECURSIVE found (key) AS (
			(%[1]s)
			UNION ALL
			SELECT following.key FROM found CROSS JOIN LATERAL (%[2]s) following
		)
		SELECT page.key, first_seen, last_seen, counted.runs
		FROM (
			SELECT found.key, f.created_at AS first_seen, l.created_at AS last_seen
			FROM found CROSS JOIN LATERAL (%[3]s) f CROSS JOIN LATERAL (%[4]s) l
			LIMIT %[5]s
		) page
		CROSS JOIN LATERAL (SELECT count(*) AS runs FROM (SELECT FROM %[6]s ORDER BY created_at LIMIT %[7]d) known) counted
		ORDER BY page.key %[8]s`,
		next(first), next(`found.key`), end(`ASC`), end(`DESC`), a.Add(p.Limit+1),
		strings.ReplaceAll(of, `found.key`, `page.key`), maxKeyRuns, keyword)
}
