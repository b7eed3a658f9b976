package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// statement is a kind of statement that Postgres has executed.
type statement struct {
	Query string  `json:"query"` // its beginning
	Calls int64   `json:"calls"`
	Took  float64 `json:"ms"` // all together
}

// forgetStatements begins a profile.
func (c *cluster) forgetStatements(ctx context.Context) error {
	if _, err := c.looks.Exec(ctx, `SELECT pg_stat_statements_reset()`); err != nil {
		return fmt.Errorf("begin profile: %w", err)
	}
	return nil
}

// dearestStatements are those that have taken the most of Postgres' time since the profile began.
func (c *cluster) dearestStatements(ctx context.Context) ([]statement, error) {
	rows, err := c.looks.Query(ctx, `
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

// reportProfile shows where Postgres' time went in the busiest of the closed loops of 3-step runs.
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
	return "Where Postgres spends its time, waiting for locks and for the disk included:\n\n" + s.String()
}
