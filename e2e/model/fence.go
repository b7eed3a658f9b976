package model

const (
	takeoverSpec = 8 // from this version on, a run may lose the token of a hook (§3.16)
	fenceSpec    = 9 // from this version on, a run has a fence (§12)
)

var superseded = Answer{Status: 412, Code: "in-band-superseded"}

// creates reports whether a run_started creates its run if there is none.
func (e Event) creates() bool {
	return e.Type == "run_started" && e.Deployment != "" && e.Workflow != "" && e.Body != ""
}

// fence returns the refusal of a write that does not pass the fence of its run, if it has one. What an orchestrator
// writes passes if it has seen all that orchestrators have written: of two of them, the one that writes first makes the
// other look at the log again, so they never write one log. Requests of earlier versions use routes that have no fence.
func (w *World) fence(r Request, e Event) (refusal Answer, refused bool) {
	h := w.Runs[r.Run]
	if h == nil {
		if e.Type != "run_created" && !e.creates() {
			return Answer{}, false
		}
		h = &History{Run: Run{Spec: r.Spec}, InBand: 1}
	}
	switch {
	case !h.fenced(), r.Spec >= fenceSpec && (!r.InBand || e.Type == "run_created"):
		return Answer{}, false
	case r.Spec < fenceSpec || r.Seen < 0:
		return invalid, true
	default:
		return superseded, r.Seen != h.InBand
	}
}

// count decides on an event, and counts what it adds to the log of a run with a fence. The writer does not count the
// run_created that a run_started brings: it is in the count that the writer has seen.
func (w *World) count(r Request, e Event) Answer {
	before := 1
	if h := w.Runs[r.Run]; h != nil {
		before = len(h.Log)
	} else if e.Type == "run_created" {
		before = 0
	}
	a := w.decide(r, e)
	h := w.Runs[r.Run]
	if a.Status != 200 || !h.fenced() {
		return a
	}
	a.Allocated = len(h.Log) - before
	if r.InBand && e.Type != "run_created" {
		h.InBand += a.Allocated
	}
	return a
}

// read answers with events of the log, and with the counters if the run has a fence.
func (h *History) read(r Request, events []Event) Answer {
	a := Answer{Status: 200, Events: events}
	if h.fenced() && r.Spec >= fenceSpec {
		a.Snapshot = [2]int{len(h.Log), h.InBand}
	}
	return a
}
