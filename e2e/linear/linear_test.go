package linear

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/stepwell-dev/stepwell/e2e/model"
)

var (
	length   = flag.Duration("for", 7*time.Second, "how long clients are at it; what they saw is checked afterwards")
	seedFlag = flag.Uint64("seed", 0, "what is drawn, though not how it meets; 0 for another each time")
)

// TestLinearizable has clients do all at once what the model does one after the other: first in peace, then while
// connections break, then while servers and the database are killed too.
func TestLinearizable(t *testing.T) { //nolint:paralleltest // what it starts wants the processors for itself
	if testing.Short() {
		t.Skip("takes many seconds")
	}
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", seed)

	c := newCluster(t)
	w := newWorld(t, c)
	w.phase(*length/5, seed, healthy, peace)
	w.wantAnswers()
	w.phase(*length/5, seed+1, broken, peace)
	w.phase(*length-2*(*length/5), seed+2, broken, c.crashes)
	for _, p := range w.proxies {
		p.close()
	}
	for _, s := range w.past {
		w.look(s)
	}
	w.check()
}

// clients is how many do something at once.
const clients = 8

// phase lets clients work for a while over such connections, and such things happen meanwhile.
func (w *world) phase(
	length time.Duration, seed uint64, connection func(*rand.Rand) fault, happen func(context.Context, *rand.Rand),
) {
	ctx, cancel := context.WithTimeout(w.t.Context(), length)
	defer cancel()
	var running sync.WaitGroup
	for i := range clients {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		running.Go(func() { w.client(ctx, i, random, func() fault { return connection(random) }) })
	}
	happen(ctx, rand.New(rand.NewPCG(seed, clients)))
	running.Wait()
}

func healthy(*rand.Rand) fault { return none }

// broken has every third connection fail in some way, or in none.
func broken(random *rand.Rand) fault {
	if random.IntN(3) > 0 {
		return none
	}
	return fault(random.IntN(int(faults)))
}

func peace(context.Context, *rand.Rand) {}

// wantAnswers complains of requests that were not answered although nothing was wrong.
func (w *world) wantAnswers() {
	for _, s := range w.past {
		for _, h := range []*history{&s.runs, &s.messages, &s.streams} {
			for _, o := range h.soFar() {
				if !o.known() {
					w.t.Errorf("%s: in peace, %v", h.name, o)
				}
			}
		}
	}
}

// check asks porcupine about every history.
func (w *world) check() {
	began := time.Now()
	operations, doubtful, partitions := 0, 0, 0
	for _, s := range w.past {
		for _, h := range []*history{&s.runs, &s.messages, &s.streams} {
			settled := h.settled()
			w.shake(settled)
			for _, o := range settled {
				if !o.known() {
					doubtful++
				}
			}
			operations += len(settled)
			partitions++
			if !w.linearizable(h.name, settled) {
				return // one is enough to look at
			}
		}
	}
	w.t.Logf("%d operations in %d histories, of which %d with unknown outcome, checked in %s; %d crashes",
		operations, partitions, doubtful, time.Since(began).Round(time.Millisecond), len(w.cluster.troubles)/2)
}

// shake marks what happened to messages while leases could get lost.
func (w *world) shake(operations []operation) {
	for i, o := range operations {
		to := o.answer
		if to == endless {
			to = w.since()
		}
		operations[i].shaky = w.cluster.shaky(w.began.Add(o.call), w.began.Add(to))
	}
}

// checkTime is how long porcupine may think about one history.
const checkTime = 20 * time.Second

// linearizable checks one history, and on failure shows as little of it as does.
func (w *world) linearizable(name string, operations []operation) bool {
	result, info := porcupine.CheckOperationsVerbose(sequential, toPorcupine(operations), checkTime)
	if result == porcupine.Ok {
		return true
	}
	if result == porcupine.Unknown {
		w.t.Errorf("%s: porcupine cannot tell of %d operations within %s:\n%s", name, len(operations), checkTime, list(operations))
		return false
	}
	file := filepath.Join(os.TempDir(), "stepwell-"+strings.ReplaceAll(name, " ", "-")+".html")
	if err := porcupine.VisualizePath(sequential, info, file); err != nil {
		w.t.Error(err)
	}
	small := shrink(operations)
	w.t.Errorf("%s is not linearizable; of %d operations this is enough (all of it is in %s):\n%s\n%s",
		name, len(operations), file, list(small), impasse(small))
	return false
}

func list(operations []operation) string {
	lines := make([]string, len(operations))
	for i, o := range operations {
		lines[i] = fmt.Sprintf("%9s – %-9s %v", o.call.Round(time.Millisecond/10), until(o.answer), o)
	}
	return strings.Join(lines, "\n")
}

// impasse says how far the operations can be put in an order, and what then cannot come next.
func impasse(operations []operation) string {
	_, info := porcupine.CheckOperationsVerbose(sequential, toPorcupine(operations), checkTime)
	var longest []porcupine.Operation
	for _, p := range info.PartialLinearizationsOperations()[0] {
		if len(p) > len(longest) {
			longest = p
		}
	}
	world := &model.World{}
	done := map[string]int{}
	for _, o := range longest {
		step(world, o.Input.(operation))
		done[o.Input.(operation).String()]++
	}
	var left []operation
	first := endless
	for _, o := range operations {
		if done[o.String()]--; done[o.String()] < 0 {
			left = append(left, o)
			first = min(first, o.answer)
		}
	}
	left = slices.DeleteFunc(left, func(o operation) bool { return o.call > first })
	for i, o := range left {
		want := world.Clone().Do(o.Request)
		left[i].got, left[i].at = want, 0
		left[i].got.Events = nil
	}
	return fmt.Sprintf("%d of %d can be in an order that leads to\n%s\nwhere one of these must be next, and should be answered so:\n%s",
		len(longest), len(operations), describe(world), list(left))
}

func until(d time.Duration) string {
	if d == endless {
		return "?"
	}
	return d.Round(time.Millisecond / 10).String()
}

func toPorcupine(operations []operation) []porcupine.Operation {
	list := make([]porcupine.Operation, len(operations))
	for i, o := range operations {
		list[i] = porcupine.Operation{
			ClientId: o.client, Input: o, Call: int64(o.call), Output: o.got, Return: int64(o.answer),
		}
	}
	return list
}

// legal reports whether the operations can be in some order, or whether that takes too long to tell.
func legal(operations []operation) bool {
	return porcupine.CheckOperationsTimeout(sequential, toPorcupine(operations), 2*time.Second) != porcupine.Illegal
}

// shrink finds few operations that still cannot be in any order: those up to a moment, without the reads and refusals
// that it does not take.
func shrink(operations []operation) []operation {
	byAnswer := slices.SortedFunc(slices.Values(operations), func(a, b operation) int { return int(a.answer - b.answer) })
	upTo := func(moment time.Duration) (early []operation) {
		for _, o := range operations {
			if o.call > moment || o.answer > moment && !o.changes() {
				continue
			}
			if o.answer > moment { // not answered yet
				o.cut = true
				if o.got.Event != nil && o.Events[0].Type != "run_started" {
					o.at = o.got.Event.Seq
				}
				o.answer, o.got.Status = endless, 0
			}
			early = append(early, o)
		}
		return early
	}
	n, _ := slices.BinarySearchFunc(byAnswer, true, func(o operation, _ bool) int {
		if o.answer == endless || !legal(upTo(o.answer)) {
			return 0
		}
		return -1
	})
	small := operations
	if n < len(byAnswer) && byAnswer[n].answer != endless {
		small = upTo(byAnswer[n].answer)
	}
	for i, deadline := len(small)-1, time.Now().Add(time.Minute); i >= 0 && time.Now().Before(deadline); i-- {
		without := slices.Delete(slices.Clone(small), i, i+1)
		if !small[i].changes() && !legal(without) {
			small = without
		}
	}
	slices.SortFunc(small, func(a, b operation) int { return int(a.call - b.call) })
	return small
}
