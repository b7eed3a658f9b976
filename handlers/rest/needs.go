package rest

import (
	"slices"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/why"
)

// orderByNeed is the order of the list of runs that has those first that need a person most.
const orderByNeed = "need"

// need returns the parameter of that name. Only runs that have not ended need anything.
func (r *request) need(f store.RunFilter) why.Need {
	need := why.Need(r.QueryParam("need"))
	if need != "" && !slices.Contains(why.Needs(), need) {
		r.fail(badParam("need", "%q is no need: ask for stuck, retrying or waiting", need))
	}
	if need == "" && r.QueryParam("orderBy") != orderByNeed {
		return ""
	}
	if f.ByEnd {
		r.fail(badParam("orderBy", "runs that have ended need nothing: leave out need, or the order"))
	}
	isOpen := func(s entities.RunStatus) bool { return !s.Ended() }
	if len(f.AnyStatus) > 0 && !slices.ContainsFunc(f.AnyStatus, isOpen) {
		r.fail(badParam("status", "runs that have ended need nothing: ask for pending or running, or leave it out"))
	}
	return need
}

// answerNeeding answers with the runs that have a need, or with all open runs in the order of theirs if it is empty.
func (s *Server) answerNeeding(r *request, f store.RunFilter, need why.Need) error {
	page, reasons := r.page(newestFirst), r.includesReason()
	if need == "" && page.Cursor != "" {
		r.fail(badParam("cursor", "a list in the order of need has one page: ask for up to 1000 runs by limit"))
	}
	return answer(r, func() (v api.Page[api.Run], err error) {
		var list []why.Explanation
		if need == "" {
			list, err = why.ListByNeed(r.ctx(), s.Queue.Pool(), r.project(), f, page.Limit)
		} else {
			list, v.Cursor, err = why.ListNeeding(r.ctx(), s.Queue.Pool(), r.project(), need, f, page)
		}
		if err != nil {
			return v, err
		}
		runs := make([]entities.Run, len(list))
		explained := map[entities.RunID]why.Explanation{}
		for i, e := range list {
			runs[i], explained[e.Run.ID] = e.Run, e
		}
		v.Data, err = s.runSummaries(r.ctx(), r.project(), r.payloads(), runs)
		for i := range v.Data {
			if reasons {
				setReason(&v.Data[i], explained, r.payloads())
			}
		}
		return v, err
	})
}

// countNeeds counts the project's runs by what they need.
func (s *Server) countNeeds(r *request) error {
	return answer(r, func() (api.RunNeeds, error) {
		counts, at, err := s.Overview.Needs(r.ctx(), r.project())
		of := func(need why.Need) api.RunCount { return newRunCountJSON(counts[need]) }
		return api.RunNeeds{
			At: timestamp(at), Stuck: of(why.Stuck), Retrying: of(why.Retrying), Waiting: of(why.Waiting),
		}, err
	})
}

func newRunCountJSON(n store.RunCount) api.RunCount {
	return api.RunCount{Count: int64(n.Count), AtLeast: n.AtLeast}
}
