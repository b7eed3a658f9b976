package sw011

import (
	"encoding/json"
	"math/big"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

type (
	good struct {
		At      time.Time
		Raw     json.RawMessage
		Amount  *big.Int
		Next    *good
		Items   []map[string]int
		Ignored struct{}
	}
	hidden    struct{ amount int }
	nested    struct{ Of []hidden }
	anything  struct{ Of any }
	callbacks struct{ Done func() }
)

var (
	_ = stepwell.NewStep[good, stepwell.None]("good")
	_ = stepwell.NewStep[hidden, good]("hidden")        // want "SW011: the log does not keep all of vettest/sw011.hidden: field amount is not exported"
	_ = stepwell.NewWorkflow[good, *nested]("nested")   // want "SW011: .*: field Of: field amount is not exported"
	_ = stepwell.NewWorkflow[anything, int]("anything") // want "SW011: .*: field Of: it has an interface, whose type is lost"
	_ = stepwell.NewHook[callbacks]("callbacks")        // want "SW011: .*: field Done: it has a function"
	_ = stepwell.NewStep[chan int, int]("channel")      // want "SW011: .*: it has a channel"
)

func generic[T any](name string) { stepwell.NewStep[T, int](name) }
