package stepwell_test

import (
	"context"
	"fmt"
	"strings"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

var Poetry = stepwell.NewWorkflow[string, int]("poetry")

var Compose = stepwell.NewStep[string, int]("compose", stepwell.Remote())

// Tokens is a stream: each run has its own.
var Tokens = stepwell.NewStream[string]("tokens")

// compose shows each word as soon as there is one.
func compose(ctx context.Context, subject string) (int, error) {
	words := strings.Fields("an ode to " + subject)
	for _, word := range words {
		Tokens.Write(stepwell.Streams(ctx), word+" ")
	}
	return len(words), nil
}

// poetry writes to the same stream. Its chunks are written once, however often its code is repeated.
func poetry(w *stepwell.Context, subject string) (int, error) {
	words, err := Compose.Run(w, subject)
	Tokens.Write(w, "(the end)")
	return words, err
}

// watch prints what a run writes, from the beginning, until the run closes the stream or ends.
func watch(ctx context.Context, client *stepwell.Client, runID string) error {
	for token, err := range Tokens.Follow(ctx, client, runID, 0) {
		if err != nil {
			return err
		}
		fmt.Print(token)
	}
	return nil
}

func ExampleStreamKind() {
	env := stepwelltest.New(t, Compose.Bind(compose), Poetry.Bind(poetry))
	run := stepwelltest.Start(env, Poetry, "rain")
	env.RunUntilDone()
	fmt.Println(stepwelltest.Written(env, Tokens, run.ID()))
	_ = watch // needs a server
	// Output:
	// [an  ode  to  rain  (the end)] true
}
