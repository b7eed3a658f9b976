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
	length   = flag.Duration("for", 7*time.Second, "how long clients send requests; the check comes after that")
	seedFlag = flag.Uint64("seed", 0, "seed of the generated requests, but not of their interleaving; 0 for a random one")
)

// TestLinearizable checks that the answers to concurrent clients are linearizable: first without faults, then with
// broken connections, then with crashes of servers and the database as well.
func TestLinearizable(t *testing.T) { //nolint:paralleltest // its processes need all processors
	if testing.Short() {
		t.Skip("takes many seconds")
	}
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", seed)

	c := newCluster(t)
	w := newWorkload(t, c)
	w.phase(*length/5, seed, healthy, noCrashes)
	w.wantAnswers()
	w.phase(*length/5, seed+1, broken, noCrashes)
	w.phase(*length-2*(*length/5), seed+2, broken, c.crashes)
	for _, p := range w.proxies {
		p.close()
	}
	for _, s := range w.all {
		w.readFinalState(s)
	}
	w.check()
}

// clients is the number of concurrent clients.
const clients = 8

// phase runs the clients for a while with the given connection faults, and the given crashes at the same time.
func (w *workload) phase(
	length time.Duration, seed uint64, connection func(*rand.Rand) fault, crash func(context.Context, *rand.Rand),
) {
	ctx, cancel := context.WithTimeout(w.t.Context(), length)
	defer cancel()
	var running sync.WaitGroup
	for i := range clients {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		running.Go(func() { w.client(ctx, i, random, func() fault { return connection(random) }) })
	}
	crash(ctx, rand.New(rand.NewPCG(seed, clients)))
	running.Wait()
}

func healthy(*rand.Rand) fault { return noFault }

// broken picks a random fault for every third connection.
func broken(random *rand.Rand) fault {
	if random.IntN(3) > 0 {
		return noFault
	}
	return fault(random.IntN(int(faults)))
}

func noCrashes(context.Context, *rand.Rand) {}

// wantAnswers checks that all requests of the phase without faults were answered.
func (w *workload) wantAnswers() {
	for _, s := range w.all {
		for _, h := range []*history{&s.runs, &s.messages, &s.streams} {
			for _, o := range h.soFar() {
				if !o.known() {
					w.t.Errorf("%s: no answer without faults: %v", h.name, o)
				}
			}
		}
	}
}

// check checks every history with porcupine.
func (w *workload) check() {
	began := time.Now()
	operations, unknown, partitions := 0, 0, 0
	for _, s := range w.all {
		for _, h := range []*history{&s.runs, &s.messages, &s.streams} {
			resolved := h.resolved()
			w.markLeasesAtRisk(resolved)
			for _, o := range resolved {
				if !o.known() {
					unknown++
				}
			}
			operations += len(resolved)
			partitions++
			if !w.linearizable(h.name, resolved) {
				return // report only the first failure
			}
		}
	}
	w.t.Logf("%d operations in %d histories, of which %d with unknown outcome, checked in %s; %d crashes",
		operations, partitions, unknown, time.Since(began).Round(time.Millisecond), len(w.cluster.disruptions)/2)
}

// markLeasesAtRisk marks the operations during which leases may have been lost.
func (w *workload) markLeasesAtRisk(operations []operation) {
	for i, o := range operations {
		to := o.answer
		if to == never {
			to = w.since()
		}
		operations[i].leaseAtRisk = w.cluster.leasesAtRisk(w.began.Add(o.call), w.began.Add(to))
	}
}

// checkTime limits the time that porcupine spends on one history.
const checkTime = 20 * time.Second

// linearizable checks one history, and reports a minimal failing part of it.
func (w *workload) linearizable(name string, operations []operation) bool {
	result, info := porcupine.CheckOperationsVerbose(sequential, toPorcupine(operations), checkTime)
	if result == porcupine.Ok {
		return true
	}
	if result == porcupine.Unknown {
		w.t.Errorf("%s: porcupine cannot decide about %d operations within %s:\n%s", name, len(operations), checkTime, list(operations))
		return false
	}
	file := filepath.Join(os.TempDir(), "stepwell-"+strings.ReplaceAll(name, " ", "-")+".html")
	if err := porcupine.VisualizePath(sequential, info, file); err != nil {
		w.t.Error(err)
	}
	small := shrink(operations)
	w.t.Errorf("%s is not linearizable; of %d operations these suffice to show it (the whole history is in %s):\n%s\n%s",
		name, len(operations), file, list(small), stuckAt(small))
	return false
}

func list(operations []operation) string {
	lines := make([]string, len(operations))
	for i, o := range operations {
		lines[i] = fmt.Sprintf("%9s – %-9s %v", o.call.Round(time.Millisecond/10), until(o.answer), o)
	}
	return strings.Join(lines, "\n")
}

// stuckAt describes the longest valid order of the operations, and the operations that cannot come next.
func stuckAt(operations []operation) string {
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
	var remaining []operation
	first := never
	for _, o := range operations {
		if done[o.String()]--; done[o.String()] < 0 {
			remaining = append(remaining, o)
			first = min(first, o.answer)
		}
	}
	remaining = slices.DeleteFunc(remaining, func(o operation) bool { return o.call > first })
	for i, o := range remaining {
		want := world.Clone().Do(o.Request)
		remaining[i].got, remaining[i].seq = want, 0
		remaining[i].got.Events = nil
	}
	return fmt.Sprintf("%d of %d can be in an order that leads to\n%s\nwhere one of these must be next, and should be answered so:\n%s",
		len(longest), len(operations), describe(world), list(remaining))
}

func until(d time.Duration) string {
	if d == never {
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

// legal reports whether the operations have a valid order, or porcupine cannot decide in time.
func legal(operations []operation) bool {
	return porcupine.CheckOperationsTimeout(sequential, toPorcupine(operations), 2*time.Second) != porcupine.Illegal
}

// shrink finds a small set of operations that has no valid order: those up to some time, without unneeded reads and
// refused requests.
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
					o.seq = o.got.Event.Seq
				}
				o.answer, o.got.Status = never, 0
			}
			early = append(early, o)
		}
		return early
	}
	n, _ := slices.BinarySearchFunc(byAnswer, true, func(o operation, _ bool) int {
		if o.answer == never || !legal(upTo(o.answer)) {
			return 0
		}
		return -1
	})
	small := operations
	if n < len(byAnswer) && byAnswer[n].answer != never {
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
