package sw002

import (
	"sync"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

func workflow(w *stepwell.Context, in chan int) (int, error) {
	var mutex sync.Mutex
	mutex.Lock()   // want "SW002: sync.Lock is called"
	go func() {}() // want "SW002: a goroutine runs beside the workflow; start coroutines with stepwell.Go"
	in <- 1        // want "SW002: a channel is used"
	x := <-in      // want "SW002: a channel is used"
	select {}      // want "SW002: select waits for channels"
	for range in { // want "SW002: a channel is used"
	}
	close(in) // want "SW002: a channel is used"
	f := stepwell.Go(w, "beside", func(w *stepwell.Context) (int, error) { return x, nil })
	return f.Await(w)
}
