package stepwell_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// figures returns the numbers that the groups of a pattern match in docs/scale.md.
func figures(t *testing.T, pattern string) []float64 {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text(t, "docs/scale.md"))
	if m == nil {
		t.Fatalf("docs/scale.md has nothing like %s", pattern)
	}
	var list []float64
	for _, group := range m[1:] {
		n, err := strconv.ParseFloat(group, 64)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

// TestSizesFollowFromTheMeasurements compares the formulas of docs/scale.md with what the bench has measured last: times
// with 200 runs in flight, and the least WAL.
func TestSizesFollowFromTheMeasurements(t *testing.T) {
	t.Parallel()
	var measured struct {
		Rows []struct {
			Case, Variant          string
			Clients                int
			Ops                    float64
			ServerCPU, PostgresCPU float64
			WALBytes               float64
		}
	}
	if err := json.Unmarshal([]byte(text(t, "bench/results/engine.json")), &measured); err != nil {
		t.Fatal(err)
	}
	near := func(what string, page, bench float64) {
		if ratio := page / bench; ratio < 0.8 || ratio > 1.25 {
			t.Errorf("%s: the page says %.2f, the bench %.2f", what, page, bench)
		}
	}
	cpu := figures(t, `\| ([\d.]+) \+ ([\d.]+) × \*n\* ms`)
	wal := figures(t, `\| WAL \| ([\d.]+) \+ ([\d.]+) × \*n\* kB`)
	factors := map[string]float64{
		"flow":   figures(t, `\[flow\]\(flows.md\) needs ([\d.]+) of that time`)[0],
		"wire":   figures(t, `one of\s+the Workflow SDK\s+([\d.]+) times as much`)[0],
		"Go SDK": figures(t, `one of the \[Go SDK\]\(sdk-go.md\) with short steps ([\d.]+)`)[0], "contract": 1,
	}
	compared, least := 0, map[float64]float64{} // kB of WAL, by steps: those without full pages after a checkpoint
	for _, row := range measured.Rows {
		steps := map[string]float64{"seq-1": 1, "seq-3": 3, "seq-10": 10}[row.Case]
		if row.Variant == "contract" && steps > 0 && row.Clients > 0 {
			written := row.WALBytes / row.Ops / 1000
			least[steps] = min(cmp.Or(least[steps], written), written)
		}
		if steps == 0 || row.Clients != 200 || row.Variant != "contract" && steps != 3 {
			continue
		}
		compared++
		what := row.Case + " " + row.Variant
		near(what+", ms", factors[row.Variant]*(cpu[0]+cpu[1]*steps), 1000*(row.ServerCPU+row.PostgresCPU)/row.Ops)
	}
	for steps, written := range least {
		near(fmt.Sprintf("%g steps, kB", steps), wal[0]+wal[1]*steps, written)
	}
	if compared != 6 || len(least) != 3 {
		t.Errorf("compared %d rows and %d sizes of WAL, want 6 and 3", compared, len(least))
	}
}

// TestDiskFollowsFromTheMeasurements compares what docs/scale.md says of ended runs with what the bench has measured.
func TestDiskFollowsFromTheMeasurements(t *testing.T) {
	t.Parallel()
	var measured struct {
		Rows []struct {
			Case   string
			Counts map[string]float64
		}
	}
	if err := json.Unmarshal([]byte(text(t, "bench/results/disk.json")), &measured); err != nil {
		t.Fatal(err)
	}
	page := figures(t, `12 events, takes ([\d.]+) kB[^.]+\.\d kB[^.]+\.\d kB[^.]+\. `+
		`One of the Go SDK with short steps, 9 events, takes ([\d.]+) kB, and one of the Workflow SDK\s+([\d.]+) kB`)
	archived := figures(t, `makes a run of the contract ([\d.]+) kB, one of the Go SDK ([\d.]+) kB, and one of\s+`+
		`the Workflow SDK ([\d.]+) kB`)
	compared := 0
	for _, row := range measured.Rows {
		said := map[string][]float64{"all": page, "archived: all": archived}[row.Case]
		if said == nil {
			continue
		}
		for i, variant := range []string{"contract", "Go SDK", "wire"} {
			compared++
			if kB := row.Counts[variant] / 1000; math.Abs(said[i]-kB) > 0.1 {
				t.Errorf("%s, %s: the page says %.1f kB, the bench %.2f", row.Case, variant, said[i], kB)
			}
		}
	}
	if compared != 6 {
		t.Errorf("compared %d sizes, want 6", compared)
	}
}

// tenant is a simulated project: its load, as a part of a cell, and where it is.
type tenant struct {
	load float64
	cell int
}

// plan is the plan of docs/scale.md: which projects are in which cells, and how full these are.
type plan struct {
	rand    *rand.Rand
	tenants []tenant
	full    []float64
	moves   int
}

const (
	givesAway = 0.70 // a cell above that gives projects away
	ownCell   = 0.50 // a project above that gets a cell of its own
)

// place puts a project into the emptier of two cells, or an empty one if it is large.
func (p *plan) place(i int) {
	a, b := p.rand.IntN(len(p.full)), p.rand.IntN(len(p.full))
	if p.full[b] < p.full[a] {
		a = b
	}
	if p.tenants[i].load > ownCell || p.full[a]+p.tenants[i].load > givesAway {
		a = slices.Index(p.full, slices.Min(p.full))
	}
	p.tenants[i].cell = a
	p.full[a] += p.tenants[i].load
}

// week has all projects grow or shrink, and then cells that are too full give projects away, the largest that are not
// most of the cell first.
func (p *plan) week() {
	in := make([][]int, len(p.full))
	clear(p.full)
	for i := range p.tenants {
		s := &p.tenants[i]
		s.load = min(3, s.load*math.Exp(0.05*p.rand.NormFloat64()))
		p.full[s.cell] += s.load
		in[s.cell] = append(in[s.cell], i)
	}
	for cell, list := range in {
		slices.SortFunc(list, func(a, b int) int { return int(math.Copysign(1, p.tenants[b].load-p.tenants[a].load)) })
		if len(list) > 0 && p.tenants[list[0]].load > ownCell {
			list = list[1:] // it stays, and the others leave
		}
		for _, i := range list {
			if p.full[cell] <= givesAway {
				break
			}
			p.full[cell] -= p.tenants[i].load
			p.place(i)
			p.moves++
		}
	}
}

// TestPlanOfAThousandCells simulates a year of the plan of docs/scale.md: loads differ by five orders of magnitude, and
// the cells are half full.
func TestPlanOfAThousandCells(t *testing.T) {
	t.Parallel()
	const cells, projects, weeks = 1000, 50_000, 52
	p := plan{rand: rand.New(rand.NewPCG(1, 2)), full: make([]float64, cells)}
	total := 0.0
	for range projects {
		load := math.Exp(2 * p.rand.NormFloat64())
		p.tenants, total = append(p.tenants, tenant{load: load}), total+load
	}
	for i := range p.tenants {
		p.tenants[i].load *= cells / 2 / total
		p.place(i)
	}
	for week := range weeks {
		p.week()
		largest := make([]float64, cells)
		for _, s := range p.tenants {
			largest[s.cell] = max(largest[s.cell], s.load)
		}
		for cell, full := range p.full {
			if full > 1 && largest[cell] <= ownCell {
				t.Fatalf("week %d: cell %d is %.0f %% full, and its largest project takes %.0f %%",
					week, cell, 100*full, 100*largest[cell])
			}
		}
	}
	most := figures(t, `fewer than ([\d.]+) % of the projects\s+move`)[0]
	if moved := 100 * float64(p.moves) / weeks / projects; moved == 0 || moved >= most {
		t.Errorf("%.2f %% of the projects move in a week, and the page says less than %g %%", moved, most)
	} else {
		t.Logf("%.2f %% of the projects move in a week", moved)
	}
}
