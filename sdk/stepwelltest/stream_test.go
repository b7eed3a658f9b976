package stepwelltest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

var (
	tokens  = stepwell.NewStream[string]("tokens")
	poems   = stepwell.NewWorkflow[string, string]("poems")
	poem    = stepwell.NewStep[int, int]("poem", stepwell.Remote())
	heading = stepwell.NewStep[string, string]("heading")
)

// TestChunksSurviveEveryCrash: wherever the process dies, what the workflow writes is there once, and each attempt of a
// step has written a beginning of what it writes; the last one, all of it.
func TestChunksSurviveEveryCrash(t *testing.T) {
	t.Parallel()
	stepwelltest.EveryCrash(t, func(t testing.TB, env *stepwelltest.Env) {
		attempts := 0
		env.Register(poem.Bind(func(ctx context.Context, lines int) (int, error) {
			attempts++
			for n := range lines {
				tokens.Write(stepwell.Streams(ctx), fmt.Sprintf("step %d.%d", attempts, n))
			}
			return lines, nil
		}), heading.Bind(func(ctx context.Context, text string) (string, error) {
			attempts++
			tokens.Write(stepwell.Streams(ctx), fmt.Sprintf("step %d.0", attempts))
			return text, nil
		}), poems.Bind(func(w *stepwell.Context, _ string) (string, error) {
			tokens.Write(w, "body 0")
			if _, err := heading.Run(w, "x"); err != nil {
				return "", err
			}
			tokens.Write(w, "body 1")
			if _, err := poem.Run(w, 3); err != nil {
				return "", err
			}
			tokens.Write(w, "body 2")
			tokens.Close(w)
			return "written", w.Sleep(1)
		}))
		run := stepwelltest.Start(env, poems, "")
		env.RunUntilDone()
		if out, err := run.Result(); out != "written" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
		chunks, closed := stepwelltest.Written(env, tokens, run.ID())
		var body []string
		last := ""
		for _, c := range chunks {
			if strings.HasPrefix(c, "body") {
				body = append(body, c)
			} else {
				last = c
			}
		}
		if !slices.Equal(body, []string{"body 0", "body 1", "body 2"}) || !closed {
			t.Errorf("the workflow has written %q, closed: %t", body, closed)
		}
		if n := len(slices.Compact(slices.Sorted(slices.Values(chunks)))); n != len(chunks) || !strings.HasSuffix(last, ".2") {
			t.Errorf("the stream has %q", chunks)
		}
	})
}

// TestClosedStreamsTakeNothing: a step that writes to one fails for good, and its context ends.
func TestClosedStreamsTakeNothing(t *testing.T) {
	t.Parallel()
	attempts := 0
	env := stepwelltest.New(t, heading.Bind(func(ctx context.Context, text string) (string, error) {
		attempts++
		tokens.Close(stepwell.Streams(ctx))
		tokens.Write(stepwell.Streams(ctx), text)
		<-ctx.Done()
		return "", ctx.Err()
	}), poems.Bind(func(w *stepwell.Context, _ string) (string, error) {
		_, err := heading.Run(w, "x")
		return "", err
	}))
	run := stepwelltest.Start(env, poems, "")
	env.RunUntilDone()
	if _, err := run.Result(); err == nil || !strings.Contains(err.Error(), "stream_closed") || attempts != 1 {
		t.Errorf("got error %v after %d attempts", err, attempts)
	}
}
