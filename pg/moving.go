package pg

import (
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/entities"
)

// The SQLSTATEs with which the trigger refuse_write refuses the writes of a project that moves to another cell, and of
// one that has moved.
const (
	codeMoving = "SWM01"
	codeMoved  = "SWM02"
)

// Staying is the condition that the project in a column is not one that leaves this database. Statements about rows of
// many projects have it, since one row of a project that leaves would fail them.
func Staying(column string) string {
	return column + ` <> ALL (ARRAY(SELECT project FROM departures))`
}

// Move is why a write was refused: its project is leaving this cell.
type Move struct {
	Project entities.Project `json:"project"`
	// Here is this cell, and Cell the one to which the project goes.
	Here entities.Cell `json:"here"`
	Cell entities.Cell `json:"cell"`
	// Done says that the other cell has the project.
	Done bool `json:"-"`
}

// MoveOf returns the move because of which a statement has failed.
func MoveOf(err error) (m Move, ok bool) {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || refused.Code != codeMoving && refused.Code != codeMoved {
		return Move{}, false
	}
	m.Done = refused.Code == codeMoved
	return m, json.Unmarshal([]byte(refused.Detail), &m) == nil
}
