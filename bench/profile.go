package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// statement is a statement in the profile of Postgres.
type statement struct {
	Query string  `json:"query"` // the beginning of its text
	Calls int64   `json:"calls"`
	Took  float64 `json:"ms"` // in total
}

// resetStatements starts a new profile.
func (c *cluster) resetStatements(ctx context.Context) error {
	if _, err := c.conn.Exec(ctx, `SELECT pg_stat_statements_reset()`); err != nil {
		return fmt.Errorf("reset profile: %w", err)
	}
	return nil
}

// topStatements returns the statements with the highest total time in the profile.
func (c *cluster) topStatements(ctx context.Context) ([]statement, error) {
	rows, err := c.conn.Query(ctx, `
		SELECT query, calls, total_exec_time + total_plan_time FROM pg_stat_statements WHERE userid = $1::regrole
		ORDER BY 3 DESC LIMIT 8`, role)
	if err != nil {
		return nil, fmt.Errorf("read profile: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[statement])
	if err != nil {
		return nil, fmt.Errorf("read profile: %w", err)
	}
	const much = 140
	for i := range all {
		q := strings.Join(strings.Fields(all[i].Query), " ")
		all[i].Query = q[:min(much, len(q))]
	}
	return all, nil
}

// reportProfile reports the profile of the closed loop with the most 3-step runs in flight.
func reportProfile(rows []row) string {
	busiest := map[string]row{}
	for _, r := range rows {
		if r.Case == "seq-3" && r.Rate == 0 && r.Clients > busiest[r.Variant].Clients {
			busiest[r.Variant] = r
		}
	}
	var s strings.Builder
	for _, d := range drivers {
		r := busiest[d.name]
		if len(r.Profile) == 0 {
			continue
		}
		what := fmt.Sprintf("%s, seq-3, %d in flight", d.name, r.Clients)
		t := newTable(1, what, "calls per run", "ms per run", "ms per call")
		for _, q := range r.Profile {
			t.add("`"+strings.ReplaceAll(q.Query, "|", "\\|")+"`", number(r.per(float64(q.Calls))), number(r.per(q.Took)),
				number(ratio(q.Took, float64(q.Calls))))
		}
		s.WriteString(t.String())
	}
	if s.Len() == 0 {
		return ""
	}
	return "Time spent in Postgres by statement, including waits for locks and for the disk:\n\n" + s.String()
}
