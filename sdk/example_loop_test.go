package stepwell_test

import (
	"context"
	"fmt"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

var (
	Auction  = stepwell.NewWorkflow[string, int]("auction")
	Bids     = stepwell.NewHook[int]("bid")
	Cheapest = stepwell.NewWorkflow[[]string, string]("cheapest")
	AskPrice = stepwell.NewStep[string, int]("ask-price")
)

// auction takes bids for an hour. The timer is made once and kept, so that the hour does not begin again with each bid.
func auction(w *stepwell.Context, item string) (best int, err error) {
	bids, closing := Bids.Open(w, stepwell.Token("bids-"+item)), w.Timer(time.Hour)
	for open := true; open && err == nil; {
		open, err = stepwell.Select(w,
			stepwell.On(bids, func(_ *stepwell.Context, bid int) (bool, error) {
				best = max(best, bid)
				return true, nil
			}),
			stepwell.On(closing, func(*stepwell.Context, time.Time) (bool, error) { return false, nil }).Keep())
	}
	return best, err
}

// cheapest asks all sellers at once, and takes the first price that is low enough.
func cheapest(w *stepwell.Context, sellers []string) (string, error) {
	var quotes []*stepwell.Future[int]
	for _, seller := range sellers {
		quotes = append(quotes, AskPrice.Go(w.Scope(seller), seller)) // named by its seller, not by its position
	}
	for i, quote := range stepwell.AsCompleted(w, quotes...) {
		if price, err := quote.Await(w); err == nil && price < 10 {
			return sellers[i], nil
		}
	}
	return "nobody", nil
}

func ExampleSelect_loop() {
	env := stepwelltest.New(t, Auction.Bind(auction))
	run := stepwelltest.Start(env, Auction, "vase")
	env.RunUntilIdle()
	for _, bid := range []int{10, 30, 20} {
		env.Resume("bids-vase", bid)
		env.Advance(10 * time.Minute)
	}
	env.RunUntilDone() // the rest of the hour passes
	fmt.Println(run.Result())
	// Output: 30 <nil>
}

func ExampleAsCompleted() {
	env := stepwelltest.New(t, Cheapest.Bind(cheapest))
	stepwelltest.Stub(env, AskPrice, func(_ context.Context, seller string) (int, error) {
		return map[string]int{"ann": 12, "bob": 9, "eve": 5}[seller], nil
	})
	run := stepwelltest.Start(env, Cheapest, []string{"ann", "bob", "eve"})
	env.RunUntilDone()
	fmt.Println(run.Result())
	// Output: bob <nil>
}
