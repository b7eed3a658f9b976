package sw003

import (
	"maps"
	"slices"
	"sort"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

var charge = stepwell.NewStep[string, string]("charge")

func workflow(w *stepwell.Context, in map[string]int) ([]string, error) {
	var last, text string
	for item := range in { // want "SW003: the order of a map is random"
		if _, err := charge.Run(w.Scope(item), item); err != nil {
			return nil, err
		}
	}
	for item := range in { // want "SW003: the order of a map is random"
		last = item
	}
	for item := range in { // want "SW003: the order of a map is random"
		text += item
	}
	unsorted := []string{}
	for item := range in { // want "SW003: the order of a map is random"
		unsorted = append(unsorted, item)
	}
	_ = slices.Collect(maps.Keys(in)) // want "SW003: maps.Keys has a random order"
	return append(unsorted, last, text), nil
}

func fine(w *stepwell.Context, in map[string]int) (int, error) {
	total, copied := 0, map[string]int{}
	for item, n := range in {
		if n == 0 {
			continue
		}
		twice := n * 2
		total += twice
		copied[item] = n
		_ = twice
	}
	var items, others []string
	for item := range in {
		items = append(items, item)
		others = append(others, item)
	}
	slices.Sort(items)
	sort.Strings(others)
	for range in {
		w.Sleep(1)
	}
	for _, item := range slices.Sorted(maps.Keys(in)) {
		if _, err := charge.Run(w.Scope(item), item); err != nil {
			return 0, err
		}
	}
	return total, nil
}
