package rest

import (
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// attributes is the JSON form of a run's attributes.
type attributes struct {
	Attributes map[string]string `json:"attributes"`
}

func (s *Server) getAttributes(c echo.Context) error {
	r, err := s.theRun(c)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, attributes{newRun(r).Attributes})
}

// setAttributes sets some attributes and removes others.
func (s *Server) setAttributes(c echo.Context) error {
	var body struct {
		Attributes map[string]*string `json:"attributes"`
	}
	if err := readBody(c, &body); err != nil {
		return err
	}
	if len(body.Attributes) == 0 {
		return badField("attributes", "there are none to change")
	}
	r, err := s.theRun(c)
	if err != nil {
		return err
	}
	var changes []entities.AttributeChange
	for _, key := range slices.Sorted(maps.Keys(body.Attributes)) {
		changes = append(changes, entities.AttributeChange{Key: key, Value: body.Attributes[key]})
	}
	ctx := c.Request().Context()
	appended, err := s.Log.Append(ctx, r.Project, eventlog.Request{
		RunID: r.ID, Type: entities.EventAttrSet, SpecVersion: r.SpecVersion, Data: entities.EventData{Changes: changes},
	})
	if errors.Is(err, entities.ErrConflict) { // attributes of ended runs stay as they are
		if now, failed := store.RunByID(ctx, s.Reader, r.Project, r.ID); failed == nil && now.Status.Ended() {
			return ended(now, entities.EventAttrSet)
		}
	}
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, attributes{appended.Run.Attributes})
}
