package allow

import (
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

func workflow(w *stepwell.Context, in string) (string, error) {
	_ = time.Now() //stepwell:allow SW001 it is only shown
	//stepwell:allow SW001 it is only shown
	_ = time.Now()
	//stepwell:allow SW002 another rule
	_ = time.Now() // want "SW001"
	helper()
	hidden()
	/* want "SW000: want //stepwell:allow SWnnn and a reason" */ //stepwell:allow SW001
	return in, nil
}

func helper() {
	_ = time.Now() //stepwell:allow SW001 it is only shown
}

// hidden is allowed.
//
//stepwell:deterministic it is only shown
func hidden() { time.Now() }
