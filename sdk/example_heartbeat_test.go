package stepwell_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

var Training = stepwell.NewWorkflow[int, string]("training")

var Train = stepwell.NewStep[int, string]("train",
	stepwell.HeartbeatTimeout(30*time.Second), stepwell.AttemptTimeout(12*time.Hour))

// train goes on where an earlier attempt was. One that hangs, or whose machine is gone, is given up after 30 seconds.
func train(ctx context.Context, epochs int) (string, error) {
	done, _ := stepwell.LastProgress[int](ctx)
	for ; done < epochs; done++ {
		if err := learn(ctx, done); err != nil {
			return "", err
		}
		if err := stepwell.Heartbeat(ctx, done+1); err != nil {
			return "", err // nobody waits for the model any more
		}
	}
	return fmt.Sprintf("a model of %d epochs", epochs), nil
}

// learn fails once, in the fourth epoch.
func learn(ctx context.Context, epoch int) error {
	attempt := stepwell.Info(ctx).Attempt
	fmt.Printf("attempt %d: epoch %d\n", attempt, epoch)
	if attempt == 1 && epoch == 3 {
		return errors.New("out of memory")
	}
	return nil
}

func ExampleHeartbeat() {
	env := stepwelltest.New(t, Train.Bind(train), Training.Bind(func(w *stepwell.Context, epochs int) (string, error) {
		return Train.Run(w, epochs)
	}))
	run := stepwelltest.Start(env, Training, 5)
	env.RunUntilDone()
	fmt.Println(run.Result())
	// Output:
	// attempt 1: epoch 0
	// attempt 1: epoch 1
	// attempt 1: epoch 2
	// attempt 1: epoch 3
	// attempt 2: epoch 3
	// attempt 2: epoch 4
	// a model of 5 epochs <nil>
}
