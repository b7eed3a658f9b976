package entities

import "strings"

// runStream begins the stored names of the streams that belong to a run.
const runStream = "run "

// RunStream returns the name under which a run's own stream is stored: names of streams are unique in the project, and
// those of a run's own streams only in the run.
func RunStream(runID RunID, name string) StreamName {
	return StreamName(runStream + string(runID) + " " + name)
}

// OfRun returns the run that a stream belongs to, and its name there; false if it is none that functions of the
// contract write.
func (n StreamName) OfRun() (runID RunID, name string, ok bool) {
	rest, ok := strings.CutPrefix(string(n), runStream)
	if !ok {
		return "", "", false
	}
	id, name, ok := strings.Cut(rest, " ")
	return RunID(id), name, ok
}
