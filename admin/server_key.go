package admin

import (
	"context"
	"crypto/rand"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/pg"
)

// serverKeySize is the size of a server key, in bytes.
const serverKeySize = 32

// ServerKey returns the random key of the given name that all servers of the database share. The first that asks for it
// creates it. No request can read it.
func ServerKey(ctx context.Context, db pg.Pool, name string) ([]byte, error) {
	fresh := make([]byte, serverKeySize)
	_, _ = rand.Read(fresh) // never fails
	var b pgx.Batch
	// Both statements see a key that another server commits while the first one waits for it.
	b.Queue(`INSERT INTO server_keys (name, secret) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`, name, fresh)
	var key []byte
	b.Queue(`SELECT secret FROM server_keys WHERE name = $1`, name).QueryRow(func(row pgx.Row) error {
		return row.Scan(&key)
	})
	err := db.Run(ctx, &b)
	return key, pg.Wrap(err, "read server key %s", name)
}
