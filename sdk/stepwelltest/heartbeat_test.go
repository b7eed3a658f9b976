package stepwelltest_test

import (
	"context"
	"testing"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

var (
	copies  = stepwell.NewWorkflow[string, string]("copies")
	copying = stepwell.NewStep[int, int]("copy", stepwell.Remote())
)

// TestProgressSurvivesEveryCrash: wherever the process dies, a step goes on where its last heartbeat was: it repeats
// one page at most for each death.
func TestProgressSurvivesEveryCrash(t *testing.T) {
	t.Parallel()
	stepwelltest.EveryCrash(t, func(t testing.TB, env *stepwelltest.Env) {
		const pages = 4
		copied, attempts := 0, 0
		env.Register(copying.Bind(func(ctx context.Context, pages int) (int, error) {
			attempts++
			done, _ := stepwell.LastProgress[int](ctx)
			for ; done < pages; done++ {
				copied++
				if err := stepwell.Heartbeat(ctx, done+1); err != nil {
					return 0, err
				}
			}
			return done, nil
		}), copies.Bind(func(w *stepwell.Context, _ string) (string, error) {
			_, err := copying.Run(w, pages)
			return "copied", err
		}))
		run := stepwelltest.Start(env, copies, "")
		env.RunUntilDone()
		if out, err := run.Result(); out != "copied" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
		if copied > pages+attempts-1 {
			t.Errorf("%d attempts have copied %d pages of %d", attempts, copied, pages)
		}
	})
}
