package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

func TestUnavailableErrors(t *testing.T) {
	t.Parallel()
	refused, err := pgx.Connect(t.Context(), "postgres://nobody@127.0.0.1:1/none?sslmode=disable")
	if err == nil {
		_ = refused.Close(t.Context())
		t.Fatal("port 1 answers")
	}
	code := func(code string) error { return &pgconn.PgError{Code: code} }
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"no error":                  {nil, false},
		"connection refused":        {err, true},
		"login refused":             {&pgconn.ConnectError{Config: &pgconn.Config{}}, true},
		"read-only node":            {code("25006"), true},
		"admin shutdown":            {code("57P01"), true},
		"crash":                     {code("57P02"), true},
		"starting":                  {code("57P03"), true},
		"too many connections":      {code("53300"), true},
		"disk full":                 {code("53100"), true},
		"connection exception":      {code("08006"), true},
		"statement timeout":         {code("57014"), true},
		"lock timeout":              {code("55P03"), true},
		"deadlock":                  {code("40P01"), true},
		"unique violation":          {code("23505"), false},
		"syntax error":              {code("42601"), false},
		"data corrupted":            {code("XX001"), false},
		"no code":                   {code(""), false},
		"connection lost":           {fmt.Errorf("receive: %w", io.ErrUnexpectedEOF), true},
		"connection reset":          {&net.OpError{Op: "read", Err: errors.New("reset")}, true},
		"connection closed":         {net.ErrClosed, true},
		"connection known as lost":  {pgconn.ErrConnClosed, true},
		"canceled by the client":    {context.Canceled, false},
		"another error of ours":     {errors.New("bug"), false},
		"no rows":                   {pgx.ErrNoRows, false},
		"wrapped read-only refusal": {fmt.Errorf("write: %w", code("25006")), true},
	} {
		check.Equal(t, name, IsUnavailable(tt.err), tt.want)
	}
}
