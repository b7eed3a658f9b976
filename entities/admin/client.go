package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// Client is what authenticated a request: a key, or a project that a browser's session has opened.
type Client struct {
	// Key is empty for a session, and Session and Project are zero for a key.
	Key     KeyID
	Session SessionID
	Project entities.Project
}

// ValidClients returns those of the clients that are still valid, in one statement: their keys are neither revoked nor
// expired at the time now, and their sessions were used after the second time and began after the third one.
func ValidClients(
	ctx context.Context, q pg.Querier, clients []Client, now, used, created time.Time,
) (map[Client]bool, error) {
	keys, sessions := make([]KeyID, len(clients)), make([][]byte, len(clients))
	projects := make([]entities.Project, len(clients))
	for i, c := range clients {
		keys[i], sessions[i], projects[i] = c.Key, c.Session[:], c.Project
	}
	rows, err := q.Query(ctx, `
		SELECT c.number FROM unnest($1::text[], $2::bytea[], $3::text[]) WITH ORDINALITY AS c (key, session, project, number)
		LEFT JOIN sessions s ON s.id = c.session AND s.used_at >= $5 AND s.created_at >= $6
		LEFT JOIN session_keys o ON o.session_id = s.id AND o.project = c.project
		LEFT JOIN api_keys k ON k.id = coalesce(o.key_id, c.key)
		WHERE o.environment IS NOT NULL
			OR k.id IS NOT NULL AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $4)`,
		keys, sessions, projects, now, used, created)
	if err != nil {
		return nil, fmt.Errorf("check clients: %w", err)
	}
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, fmt.Errorf("check clients: %w", err)
	}
	valid := map[Client]bool{}
	for _, n := range numbers {
		valid[clients[n-1]] = true
	}
	return valid, nil
}
