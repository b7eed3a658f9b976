package sw008

import stepwell "github.com/stepwell-dev/stepwell/sdk"

var (
	count int
	cache = map[string]string{}
	state struct{ seen []string }
)

func workflow(w *stepwell.Context, in string) (string, error) {
	count++                             // want "SW008: count is a variable of the process"
	cache[in] = in                      // want "SW008: cache is a variable of the process"
	state.seen = append(state.seen, in) // want "SW008: state is a variable of the process"
	local := map[string]string{}
	local[in] = in
	return local[in], nil
}
