package engine

import (
	"context"
	"fmt"
	"strconv"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/view"
)

// ExchangeHere is [Engine.Exchange] for the app in this process, without a request of the API: it returns what the API
// would answer. It fails too if that has to be read from the database; then the commands are written.
func (e *Engine) ExchangeHere(ctx context.Context, c token.Call, after int64, body []byte) (answer []byte, err error) {
	if len(body) > contract.MaxAnswer {
		return nil, entities.Invalid("the commands are %d bytes; the limit is %d", len(body), contract.MaxAnswer)
	}
	ctx = share.For(ctx, string(c.Project))
	err = rescue.Do(ctx, "commands", func() error {
		results, err := e.Exchange(ctx, c, after, body)
		if err == nil {
			answer, err = encodeAfter(after, results)
		}
		return err
	})
	return answer, err
}

// encodeAfter encodes the events that follow the position, of which the results of the commands are a part.
func encodeAfter(after int64, results []eventlog.Result) ([]byte, error) {
	if len(results) == 0 || int64(len(results[len(results)-1].Log)) < after {
		return nil, fmt.Errorf("the events after %d are not at hand", after)
	}
	log := results[len(results)-1].Log
	answer := strconv.AppendInt([]byte(`{"seq":`), int64(len(log)), 10)
	answer = append(answer, `,"events":[`...)
	var encoder view.Encoder
	for i := after; i < int64(len(log)); i++ {
		if i > after {
			answer = append(answer, ',')
		}
		shown := view.Of(&log[i])
		var err error
		if answer, err = encoder.Append(answer, &shown); err != nil {
			return nil, fmt.Errorf("encode event %d: %w", i+1, err)
		}
	}
	return append(answer, "]}"...), nil
}
