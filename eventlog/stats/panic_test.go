package stats

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// panicky panics in each statement about the project hostile.
type panicky struct{}

const hostile = entities.Project("hostile")

func (panicky) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if slices.Contains(d.Args, any(hostile)) {
		panic("a statement")
	}
	return ctx
}

func (panicky) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestPanicKeepsNoOtherFromBeingCounted: the events of a project are counted although it panics to count those of
// another one.
func TestPanicKeepsNoOtherFromBeingCounted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	config := f.pool.Config().Copy()
	config.ConnConfig.Tracer = panicky{}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := f.pool.Exec(t.Context(), `INSERT INTO projects (name) VALUES ($1)`, hostile); err != nil {
		t.Fatal(err)
	}
	f.start(t, "order")
	if _, err := f.Append(t.Context(), hostile, eventlog.Request{
		RunID: entities.RunID("wrun_" + ulid.MustNew(ulid.Timestamp(f.Reader.now()), rand.Reader).String()),
		Type:  entities.EventRunCreated, SpecVersion: entities.SpecDriven, Payload: []byte("{}"), Data: entities.EventData{
			Driver: entities.DriverServer, WorkflowName: "order", DeploymentID: "shop",
		},
	}); err != nil {
		t.Fatal(err)
	}
	follower, counted, panicked := NewFollower(pool), 0, false
	for counted == 0 || !panicked { // until the transactions that were open then have ended
		err := follower.Follow(t.Context())
		if panicked = panicked || rescue.IsPanic(err); err != nil && !rescue.IsPanic(err) {
			t.Fatal(err)
		}
		err = f.pool.QueryRow(t.Context(), `SELECT count(*) FROM stats WHERE project = $1`, home).Scan(&counted)
		if err != nil {
			t.Fatal(err)
		}
	}
}
