package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities/atrest"
)

// InstallPayloads makes the connections of a pool store payloads by a codec. Without it they are stored as they are.
func InstallPayloads(c atrest.Codec) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) {
		after := config.AfterConnect
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			if after != nil {
				if err := after(ctx, conn); err != nil {
					return err
				}
			}
			registerPayloads(conn.TypeMap(), c)
			return nil
		}
		tracer := preparer{c}
		if config.ConnConfig.Tracer != nil {
			config.ConnConfig.Tracer = multitracer.New(tracer, config.ConnConfig.Tracer)
		} else {
			config.ConnConfig.Tracer = tracer
		}
	}
}

// preparer prepares the codec for the payloads of the project for which a connection is taken.
type preparer struct{ codec atrest.Codec }

// TraceAcquireStart implements [pgxpool.AcquireTracer].
func (p preparer) TraceAcquireStart(
	ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData,
) context.Context {
	if project := share.KeyOf(ctx); project != "" {
		_ = p.codec.Prepare(project) // what needs a payload fails with it
	}
	return ctx
}

// TraceAcquireEnd implements [pgxpool.AcquireTracer].
func (preparer) TraceAcquireEnd(context.Context, *pgxpool.Pool, pgxpool.TraceAcquireEndData) {}

// TraceQueryStart implements [pgx.QueryTracer], as every tracer of a pool must.
func (preparer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (preparer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// registerPayloads teaches a connection to encode [atrest.Payload] and [atrest.Text].
func registerPayloads(m *pgtype.Map, c atrest.Codec) {
	m.RegisterType(&pgtype.Type{Name: "bytea", OID: pgtype.ByteaOID, Codec: payloadCodec{pgtype.ByteaCodec{}, c}})
	m.RegisterType(&pgtype.Type{Name: "text", OID: pgtype.TextOID, Codec: payloadCodec{pgtype.TextCodec{}, c}})
}

// payloadCodec is the codec of a type of Postgres that can have payloads.
type payloadCodec struct {
	pgtype.Codec

	payloads atrest.Codec
}

// PlanEncode implements [pgtype.Codec].
func (c payloadCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	switch value.(type) {
	case atrest.Payload, atrest.Text:
		// The driver tries the format of text if the other one fails, and must then fail as well.
		return payloadPlan{c.payloads, format}
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

// payloadPlan encodes a payload.
type payloadPlan struct {
	codec  atrest.Codec
	format int16
}

// errTextFormat refuses to encode a payload as the text of a bytea.
var errTextFormat = errors.New("payloads are sent in the binary format only")

// Encode implements [pgtype.EncodePlan].
func (p payloadPlan) Encode(value any, buf []byte) ([]byte, error) {
	payload, isBytes := value.(atrest.Payload)
	if !isBytes {
		payload = atrest.Payload(value.(atrest.Text))
	}
	if payload.Bytes == nil {
		return nil, nil
	}
	if isBytes && p.format != pgtype.BinaryFormatCode {
		return nil, errTextFormat
	}
	made, err := p.codec.Seal(payload)
	if err != nil {
		return nil, err //nolint:wrapcheck // the driver wraps it
	}
	if !isBytes && atrest.IsMade(made) {
		return append(buf, atrest.EncodeText(made)...), nil
	}
	return append(buf, made...), nil
}

// CodecOf returns the codec of the connection that the rows come from. Rows that end later no longer have it. Those
// that have ended may, and the connection is then somebody else's: the types that it knows are all that may be read of
// it.
func CodecOf(rows pgx.Rows) atrest.Codec {
	if conn := rows.Conn(); conn != nil {
		if t, ok := conn.TypeMap().TypeForOID(pgtype.ByteaOID); ok {
			if c, ok := t.Codec.(payloadCodec); ok {
				return c.payloads
			}
		}
	}
	return atrest.Identity{}
}

// OpenRows opens the payloads of rows, if their type has any: see [atrest.Row].
func OpenRows[T any](c atrest.Codec, rows []T) error {
	if _, ok := any((*T)(nil)).(atrest.Row); !ok {
		return nil
	}
	var o atrest.Opener
	for i := range rows {
		any(&rows[i]).(atrest.Row).Payloads(&o)
	}
	return o.Open(c) //nolint:wrapcheck // its errors say what failed
}

// Embed puts into rows that are as they are stored what the database does not have.
func Embed[T any](codec atrest.Codec, rows []T) error {
	c, ok := codec.(interface{ Embed([]atrest.Item) error })
	if !ok {
		return nil
	}
	var o atrest.Opener
	for i := range rows {
		any(&rows[i]).(atrest.Row).Payloads(&o)
	}
	return c.Embed(o.Items())
}

// Open opens the payloads of a row.
func Open(c atrest.Codec, row atrest.Row) error {
	var o atrest.Opener
	row.Payloads(&o)
	return o.Open(c) //nolint:wrapcheck // its errors say what failed
}

// collect collects rows, and opens their payloads when all are read.
func collect[T any](rows pgx.Rows) ([]T, error) {
	codec := CodecOf(rows)
	items, err := pgx.CollectRows(rows, new(structScanner[T]).scan)
	if err == nil {
		err = OpenRows(codec, items)
	}
	return items, err
}

// structScanner scans the rows of a query as [pgx.RowToStructByName] does, but finds the fields of the columns once and
// not for each row, which takes as long as scanning them.
type structScanner[T any] struct {
	value  *T
	fields []any // pointers to those of the value
}

func (s *structScanner[T]) scan(row pgx.CollectableRow) (T, error) {
	if s.value == nil {
		first := fieldsRow{row, &s.fields}
		value, err := pgx.RowToAddrOfStructByName[T](first)
		s.value = value
		return *value, err
	}
	var zero T
	*s.value = zero
	err := row.Scan(s.fields...)
	return *s.value, err
}

// fieldsRow is a row that keeps the fields into which it is scanned.
type fieldsRow struct {
	pgx.CollectableRow

	fields *[]any
}

func (r fieldsRow) Scan(fields ...any) error {
	*r.fields = fields
	return r.CollectableRow.Scan(fields...)
}
