package pg

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"
)

// answerMargin is how much later than the database a process ends its statement.
const answerMargin = 5 * time.Second

// InstallDeadlines makes statements end soon after the statement_timeout of the configuration, also when the database
// cannot end them: the process that executes one may be stopped, or its answer be lost. It is a tracer, because that is
// where all statements of a pool can be given another context.
func InstallDeadlines(config *pgxpool.Config) {
	c := config.ConnConfig
	limit := settingOf(c.RuntimeParams["statement_timeout"])
	if limit == 0 {
		return
	}
	d := deadlines{limit + answerMargin}
	if c.Tracer != nil {
		c.Tracer = multitracer.New(c.Tracer, d)
	} else {
		c.Tracer = d
	}
}

// settingOf returns the duration of a setting of Postgres, such as 30s, 2min or 500; 0 if it has none.
func settingOf(value string) time.Duration {
	if ms, err := strconv.Atoi(value); err == nil {
		return time.Duration(ms) * time.Millisecond
	}
	d, err := time.ParseDuration(strings.Replace(strings.ReplaceAll(value, " ", ""), "min", "m", 1))
	if err != nil {
		return 0 // in a unit that hardly anybody uses
	}
	return d
}

// deadlines gives statements and batches a deadline.
type deadlines struct{ limit time.Duration }

// deadlineEnd is the key of the function that ends the context of a statement.
type deadlineEnd struct{}

// ownLimit is the key of the limit of statements that have one of their own.
type ownLimit struct{}

// WithStatementTimeout gives the statements of a transaction a limit of their own, 0 for none, in the database and in
// this process. They must use the context that it returns.
func WithStatementTimeout(ctx context.Context, tx pgx.Tx, limit time.Duration) (context.Context, error) {
	_, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', $1, true)`, strconv.FormatInt(limit.Milliseconds(), 10))
	return context.WithValue(ctx, ownLimit{}, limit), Wrap(err, "set statement_timeout")
}

func (d deadlines) start(ctx context.Context) context.Context {
	limit := d.limit
	if own, ok := ctx.Value(ownLimit{}).(time.Duration); ok {
		if own == 0 {
			return ctx
		}
		limit = own + answerMargin
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	return context.WithValue(ctx, deadlineEnd{}, cancel)
}

func (deadlines) end(ctx context.Context) {
	if cancel, ok := ctx.Value(deadlineEnd{}).(context.CancelFunc); ok {
		cancel()
	}
}

// TraceQueryStart implements [pgx.QueryTracer].
func (d deadlines) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return d.start(ctx)
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (d deadlines) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	d.end(ctx)
}

// TraceBatchStart implements [pgx.BatchTracer].
func (d deadlines) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return d.start(ctx)
}

// TraceBatchQuery implements [pgx.BatchTracer].
func (deadlines) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements [pgx.BatchTracer].
func (d deadlines) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	d.end(ctx)
}
