package remote

import (
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type pauseRow api.Pause

func (p pauseRow) columns() []field {
	return []field{{"paused", p.Kind}, {"name", p.Name}, {"by", p.PausedBy}, {"since", p.PausedAt}, {"note", p.Note}}
}
