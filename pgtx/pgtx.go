// Package pgtx asks Stepwell for something in a transaction of your own, when your tables and Stepwell's schema are in
// one database: a run starts if your order is committed, and not if it is rolled back. It calls functions in SQL,
// which any language can call; docs/transactions.md describes them, and how a role may call them.
//
// The server learns of a request by the commit. So what it refuses, such as an input that does not fit a schema, is no
// error here: the request becomes a parked message, which the dashboard and `stepwell attention` show.
package pgtx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Querier executes the call: a [pgx.Tx], so that it counts with the transaction. A connection or a pool commits it at
// once.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Stepwell is the Postgres schema of a Stepwell server.
type Stepwell string

// Default is the schema that servers use unless STEPWELL_SCHEMA names another.
const Default Stepwell = "stepwell"

// Start is a run to start.
type Start struct {
	// Workflow is the name of what is run.
	Workflow string
	// Input is encoded as JSON; nil for none.
	Input any
	// Options are those of POST /v1/runs, such as "key" and "attributes", but for debounce and batch; nil for none.
	Options map[string]any
	// Project is the project of the run; empty for default.
	Project string
}

// StartTx starts a run when the transaction is committed, and returns the run's ID. With the option "onConflict":
// "join", or with an "idempotencyKey" that was used before, there may be another run instead.
func (s Stepwell) StartTx(ctx context.Context, tx Querier, start Start) (runID string, err error) {
	options := start.Options
	if options == nil {
		options = map[string]any{}
	}
	err = s.call(ctx, tx, &runID, "start_run($1, $2::json, $3::json, coalesce(nullif($4, ''), 'default'))",
		start.Workflow, inJSON{start.Input}, inJSON{options}, start.Project)
	return runID, wrap(err, "start run of %s", start.Workflow)
}

// Signal is a signal to send.
type Signal struct {
	// Name is the name of the signal.
	Name string
	// Data is encoded as JSON.
	Data any
	// ID makes the signal count once, however often it is sent; empty for none.
	ID string
	// Project is the project that gets the signal; empty for default.
	Project string
}

// SignalTx sends a signal when the transaction is committed.
func (s Stepwell) SignalTx(ctx context.Context, tx Querier, signal Signal) error {
	err := s.call(ctx, tx, nil, "send_signal($1, $2::json, nullif($3, ''), coalesce(nullif($4, ''), 'default'))",
		signal.Name, inJSON{signal.Data}, signal.ID, signal.Project)
	return wrap(err, "send signal %s", signal.Name)
}

// Resumption is a payload for a hook.
type Resumption struct {
	// Token is the token of the hook.
	Token string
	// Payload is encoded as JSON.
	Payload any
	// ID makes it resume the hook once, however often it is sent; empty for none.
	ID string
	// Project is the project of the hook's run; empty for default.
	Project string
}

// ResumeTx resumes a hook when the transaction is committed.
func (s Stepwell) ResumeTx(ctx context.Context, tx Querier, r Resumption) error {
	err := s.call(ctx, tx, nil, "resume_hook($1, $2::json, nullif($3, ''), coalesce(nullif($4, ''), 'default'))",
		r.Token, inJSON{r.Payload}, r.ID, r.Project)
	return wrap(err, "resume hook")
}

// Message is a message to an inbox of a run.
type Message struct {
	// RunID and Inbox say where it goes.
	RunID, Inbox string
	// Payload is encoded as JSON.
	Payload any
	// ID makes the message count once in the inbox, however often it is sent; empty for none.
	ID string
	// Project is the project of the run; empty for default.
	Project string
}

// SendTx sends a message to an inbox when the transaction is committed.
func (s Stepwell) SendTx(ctx context.Context, tx Querier, m Message) error {
	err := s.call(ctx, tx, nil, "send_message($1, $2, $3::json, nullif($4, ''), coalesce(nullif($5, ''), 'default'))",
		m.RunID, m.Inbox, inJSON{m.Payload}, m.ID, m.Project)
	return wrap(err, "send message to inbox %s of run %s", m.Inbox, m.RunID)
}

// Beginner begins transactions: a [pgx.Conn] or a pool.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// ErrNoStep is returned by [Step] for a key that is not one of a step.
var ErrNoStep = errors.New("the key is not that of a step: pass stepwell.IdempotencyKey(ctx) of the step's context")

// Step executes a step's writes exactly once: they and the result are one transaction. If the step is executed again,
// because its process died before Stepwell knew the result, it returns the result and writes nothing. Key is the step's
// idempotency key, stepwell.IdempotencyKey(ctx) with the Go SDK, or RUN/STEP. The result must be JSON.
//
// While the step is executed twice at once, the second one waits for the first. An error of do rolls back, and the
// step is executed when it is retried. Results are kept as long as their run.
func Step[T any](
	ctx context.Context, db Beginner, s Stepwell, key string, do func(ctx context.Context, tx pgx.Tx) (T, error),
) (result T, err error) {
	run, step, ok := strings.Cut(key, "/")
	if !ok || run == "" || step == "" {
		return result, ErrNoStep
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		var before []byte
		if err := s.call(ctx, tx, &before, "begin_step($1, $2)", run, step); err != nil {
			return err
		}
		if before != nil {
			return json.Unmarshal(before, &result)
		}
		if result, err = do(ctx, tx); err != nil {
			return err
		}
		return s.call(ctx, tx, nil, "end_step($1, $2, $3::json)", run, step, inJSON{result})
	})
	return result, wrap(err, "step %s", key)
}

// inJSON is an argument that is encoded as JSON; NULL for nil.
type inJSON struct{ value any }

// call calls a function of the schema, and scans its result unless that is nil.
func (s Stepwell) call(ctx context.Context, tx Querier, result any, call string, args ...any) (err error) {
	for i, arg := range args {
		if v, ok := arg.(inJSON); ok {
			if args[i], err = v.encode(); err != nil {
				return err
			}
		}
	}
	return tx.QueryRow(ctx, "SELECT "+pgx.Identifier{string(s)}.Sanitize()+"."+call, args...).Scan(result)
}

func (v inJSON) encode() (*string, error) {
	if v.value == nil {
		return nil, nil //nolint:nilnil // NULL
	}
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v.value)
	return new(strings.TrimSuffix(b.String(), "\n")), err
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
