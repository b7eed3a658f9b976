package admin

import (
	"context"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// Departure says where a project is that has moved to another cell. The zero Departure is that of a project which has
// not.
type Departure struct {
	// MovedFrom is this cell, and MovedTo the other one.
	MovedFrom, MovedTo entities.Cell
}

// departureOf returns the columns of the [Departure] of the project in a column.
func departureOf(column string) string {
	moved := `FROM departures d WHERE d.moved_at IS NOT NULL AND d.project = ` + column
	return `coalesce((SELECT d.here ` + moved + `), '') AS moved_from,
		coalesce((SELECT d.cell ` + moved + `), '') AS moved_to`
}

// Refusal returns the error of a request for something of the project, the subject of a sentence.
func (d Departure) Refusal(what string) error {
	return &entities.WrongCellError{What: what, Here: d.MovedFrom, In: d.MovedTo}
}

// ArrivedKey reads the key with which another cell has made the tokens of the calls of a project that came from there;
// nil if the project did not.
func ArrivedKey(
	ctx context.Context, q pg.Querier, project entities.Project, from entities.Cell,
) (key []byte, err error) {
	keys, err := pg.CollectColumn[[]byte](q.Query(ctx, `
		SELECT calls FROM arrivals WHERE project = $1 AND cell = $2`, project, from))
	if err != nil || len(keys) == 0 {
		return nil, pg.Wrap(err, "read the key of cell %s", from)
	}
	return keys[0], nil
}
