package pg

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
)

// The events of a project are ordered by positions. A position is the number of the transaction that wrote the event,
// in an order that outlives the cluster. A restore from a backup makes these numbers go back, and a dump that is
// restored in another cluster meets others. So the time of a database is divided into epochs. One begins whenever
// Postgres was started, before anything is written: whatever is restored, Postgres is started for it.
//
//   - What an epoch adds to the numbers, its base, puts all its places after those of earlier epochs. It stays the same
//     while the numbers go on, as after a restart or a failover.
//   - Cursors name the epoch in which they were made. When the next one begins, it remembers up to which place the
//     history was kept. A cursor further than that, or of an epoch that this database does not know, is of a history
//     that was lost: what follows in this one would not be what its reader has not seen.
//
// The base is read by the statement that needs it, so no process can have an old one.

// FeedBase is the base of the current epoch.
const FeedBase = `(SELECT base FROM feed_epochs ORDER BY number DESC LIMIT 1)`

// FeedPosition returns the SQL for the place of a transaction, given the SQL for its number.
func FeedPosition(xid string) string {
	return `((` + xid + `)::text::bigint + ` + FeedBase + `)::text::xid8`
}

// InstallEpochs makes each connection of the pool begin the epoch of its Postgres before it is used, unless another one
// has begun it.
func InstallEpochs(config *pgxpool.Config) {
	after := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if after != nil {
			if err := after(ctx, conn); err != nil {
				return err
			}
		}
		if err := BeginEpoch(ctx, conn); err != nil {
			return fmt.Errorf("begin an epoch of the feed: %w", err)
		}
		return nil
	}
}

// BeginEpoch begins an epoch if Postgres was started since the last one began.
func BeginEpoch(ctx context.Context, conn interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) error {
	var known bool
	err := conn.QueryRow(ctx, `
		SELECT started_at = pg_postmaster_start_time() OR current_setting('transaction_read_only')::boolean
		FROM feed_epochs ORDER BY number DESC LIMIT 1`).Scan(&known)
	if err != nil || known {
		return err
	}
	var system string
	err = conn.QueryRow(ctx, `SELECT system_identifier::text FROM pg_control_system()`).Scan(&system)
	if _, refused := errors.AsType[*pgconn.PgError](err); err != nil && !refused {
		return err // some managed databases refuse it, and their clusters cannot be told apart
	}
	_, err = conn.Exec(ctx, addEpoch, system, entities.EventTypes)
	return err
}

// addEpoch adds the epoch that follows the last one, unless another process has just done so. $1 identifies the
// cluster, and $2 are the types of events. While the numbers of transactions go on, the history was kept up to the one
// that comes next. Otherwise it was up to the last event that is here, or was counted here before retention deleted it.
const addEpoch = `
	WITH last AS (
		SELECT *, pg_snapshot_xmax(now)::text::bigint AS next, pg_snapshot_xmin(now)::text::bigint AS oldest,
			$1::text || ':' || (SELECT oid FROM pg_database WHERE datname = current_database())::text AS here
		FROM feed_epochs, pg_current_snapshot() now ORDER BY number DESC LIMIT 1
	), events AS (
		SELECT 1 + greatest((SELECT max(xid::text::bigint) FROM stats_progress), (
			SELECT max(newest.xid::text::bigint) FROM projects, unnest($2::text[]) AS of (type), LATERAL (
				SELECT xid FROM events e WHERE e.project = projects.name AND e.type = of.type
				ORDER BY e.xid DESC LIMIT 1) newest), 0) AS stop
	), next AS (
		SELECT last.*, stop, cluster IN ('', here) AND stop <= base + next AS goes_on FROM last, events
	)
	INSERT INTO feed_epochs (number, id, cluster, started_at, begins, base)
	SELECT number + 1, left(gen_random_uuid()::text, 8), here, pg_postmaster_start_time(),
		CASE WHEN goes_on THEN base + next ELSE stop END, CASE WHEN goes_on THEN base ELSE greatest(base, stop - oldest) END
	FROM next WHERE started_at <> pg_postmaster_start_time()
	ON CONFLICT (number) DO NOTHING`

// RaiseFeed begins an epoch whose places are not before the given one, unless those of this epoch are not either. It is
// for events that come from another database. The transaction must end soon: nobody writes events until then. It waits
// for all that do, since no event may get a place of the old epoch when there are events in the new one.
func RaiseFeed(ctx context.Context, tx pgx.Tx, place int64) error {
	_, err := tx.Exec(ctx, `LOCK TABLE events, signals IN SHARE ROW EXCLUSIVE MODE`)
	if err == nil {
		_, err = tx.Exec(ctx, `
			INSERT INTO feed_epochs (number, id, cluster, started_at, begins, base)
			SELECT number + 1, left(gen_random_uuid()::text, 8), cluster, started_at, $1::bigint,
				$1 - pg_snapshot_xmin(now)::text::bigint
			FROM (SELECT * FROM feed_epochs ORDER BY number DESC LIMIT 1) last, pg_current_snapshot() now
			WHERE base + pg_snapshot_xmax(now)::text::bigint < $1`, place)
	}
	return Wrap(err, "raise the places of the feed")
}
