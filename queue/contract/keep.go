package contract

import (
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

const (
	maxKeepName = 64
	maxKeepTime = 5 * time.Minute
)

// Keep is a hint in an answer: a process keeps the state of the run in memory for a while, so that the next call need
// not carry what that process knows.
type Keep struct {
	// Seq is the position in the run's log up to which the process knows it.
	Seq int64 `json:"seq"`
	// By is the name of the process.
	By string `json:"by"`
	// For is how long it keeps the state.
	For duration `json:"for"`
}

// Until returns when the process will have forgotten the run if it begins to keep it now.
func (k Keep) Until(now time.Time) time.Time { return now.Add(time.Duration(k.For)) }

func (k *Keep) validate() error {
	switch {
	case k == nil:
		return nil
	case k.Seq < 1:
		return entities.Invalid("keep: seq %d is no position in the log", k.Seq)
	case k.For <= 0 || time.Duration(k.For) > maxKeepTime:
		return entities.Invalid(`keep: want "for" between 0 and %s`, maxKeepTime)
	default:
		return entities.ValidateText("keep: by", k.By, maxKeepName)
	}
}
