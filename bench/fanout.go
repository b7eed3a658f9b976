package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// mapCase is a flow's map; its size is the number of items, and its clients are those that are open at once.
const mapCase = "map"

// mapDocument returns a flow that has a step executed for each item of its input.
func mapDocument(items, open int) (name, document string) {
	name = fmt.Sprintf("%swide-%d", flowPrefix, items)
	return name, fmt.Sprintf("flow: %s\ndeployment: %s\noutput: 3\nsteps:\n"+
		"  m: {map: input, concurrency: %d, do: {call: work}}\n", name, contractDeployment, open)
}

// measureFanOut measures runs with very many steps at once. An operation is a step.
func measureFanOut(ctx context.Context, b *bench) (rows []row, err error) {
	for _, items := range b.items {
		for _, open := range b.itemsOpen {
			r, err := b.mapRow(ctx, row{Case: mapCase, Variant: "flow", Size: items, Clients: open})
			if err != nil {
				return nil, err
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// mapRow measures a map on a server of its own.
func (b *bench) mapRow(ctx context.Context, r row) (_ row, err error) {
	s, err := b.newTestbed(ctx, "all")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.clear()) }()
	name, document := mapDocument(r.Size, r.Clients)
	if err := s.client.putFlow(ctx, document); err != nil {
		return r, err
	}
	if err := s.cluster.checkpoint(ctx); err != nil {
		return r, err
	}
	input := make([]int, r.Size)
	once := func(ctx context.Context, _ int, _ time.Time) (time.Time, error) {
		err := s.client.executeRunOn(ctx, name+"@1", name, input)
		return time.Now(), err
	}
	r, err = s.measure(ctx, r, func() (*sample, error) { return closedLoop(ctx, 1, time.Nanosecond, once), nil })
	if err != nil {
		return r, err
	}
	peak, err := peakMemory(s.server.PID())
	r.Ops *= int64(r.Size)
	r.Counts = map[string]float64{countMemory: peak}
	say("fanout %s of %d, %d open: %.1f s, %.2f ms of CPU per item, %.0f MB", r.Case, r.Size, r.Clients, r.Seconds,
		allCPU.of(r), peak)
	return r, err
}
