package hostile

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// neighbour is what became of the victim beside one abuse: a row of the table.
type neighbour struct {
	abuse

	before, during, recovering, after, control, controlBefore sample

	answers map[string]int // of the attacker's requests
	alive   bool           // whether the attacked server has survived
	cpu     time.Duration  // that of the attacked server
	memory  int            // its most, in MiB
}

// sample is what became of runs of the victim.
type sample struct {
	runs  int
	times []time.Duration // of the runs with the right result, in order
	fault error           // of one of the others
}

// at returns the time within which the share of the runs with the right result ended; 0 if there is none.
func (s sample) at(share float64) time.Duration {
	if len(s.times) == 0 {
		return 0
	}
	return s.times[max(0, int(share*float64(len(s.times))+0.5)-1)]
}

// String returns the median and the 99th percentile in milliseconds, and how many runs were right unless all were.
func (s sample) String() string {
	if s.runs == 0 {
		return "–"
	}
	text := "–"
	if len(s.times) > 0 {
		text = fmt.Sprintf("%d / %d", s.at(0.5).Milliseconds(), s.at(0.99).Milliseconds())
	}
	if len(s.times) < s.runs {
		text += fmt.Sprintf(" **%d of %d right**", len(s.times), s.runs)
	}
	return text
}

// bound is how much longer the victim's runs may take than before, and which times are good enough in any case.
type bound struct {
	medianTimes, highTimes int
	median, high           time.Duration
}

var (
	// beside is the bound during an attack, and asBefore some seconds after it.
	beside   = bound{medianTimes: 5, highTimes: 10, median: 50 * time.Millisecond, high: 250 * time.Millisecond}
	asBefore = bound{medianTimes: 2, highTimes: 4, median: 50 * time.Millisecond, high: 250 * time.Millisecond}
)

// exceeded says in which way the runs took longer; it is empty if they did not.
func (b bound) exceeded(before, then sample) (faults []string) {
	if most := max(b.median, time.Duration(b.medianTimes)*before.at(0.5)); then.at(0.5) > most {
		faults = append(faults, fmt.Sprintf("a median of %s, want at most %s", then.at(0.5), most))
	}
	if most := max(b.high, time.Duration(b.highTimes)*before.at(0.99)); then.at(0.99) > most {
		faults = append(faults, fmt.Sprintf("a 99th percentile of %s, want at most %s", then.at(0.99), most))
	}
	return faults
}

// wrong says what became of runs of the victim that are not right.
func (n neighbour) wrong() (faults []string) {
	if !n.alive {
		faults = append(faults, "the server has died")
	}
	for i, s := range []sample{n.before, n.during, n.recovering, n.after} {
		if missing := s.runs - len(s.times); missing > 0 {
			when := []string{"before", "during", "right after", "after"}[i]
			faults = append(faults, fmt.Sprintf("%s: %d of %d runs are not right, such as: %v", when, missing, s.runs, s.fault))
		}
	}
	return faults
}

// slow says when the victim's runs took too long.
func (n neighbour) slow() (faults []string) {
	for _, f := range beside.exceeded(n.before, n.during) {
		faults = append(faults, "during: "+f)
	}
	for _, f := range asBefore.exceeded(n.before, n.after) {
		faults = append(faults, "after: "+f)
	}
	return faults
}

// verdict is the last column of the table.
func (n neighbour) verdict() string {
	switch {
	case len(n.wrong()) > 0:
		return "**wrong**"
	case len(beside.exceeded(n.controlBefore, n.control)) > 0:
		return "unclear: the control was as slow"
	case len(n.slow()) > 0:
		return "**slow**"
	default:
		return "held"
	}
}

// String returns the row in Markdown.
func (n neighbour) String() string {
	var answers []string
	for _, answer := range slices.Sorted(maps.Keys(n.answers)) {
		answers = append(answers, fmt.Sprintf("%d × %s", n.answers[answer], answer))
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %.1f s, %d MiB | %s |\n",
		n.name, cmp.Or(n.role, "–"), n.before, n.during, n.after, n.control, cmp.Or(strings.Join(answers, ", "), "–"),
		n.cpu.Seconds(), n.memory, n.verdict())
}

// neighbours are the results of all abuses.
type neighbours struct {
	machine string // a sentence
	rows    []neighbour
}

// String returns a table in Markdown.
func (all neighbours) String() string {
	var b strings.Builder
	b.WriteString("| abuse | key | before | during | after | control during | answers | CPU, memory | verdict |\n" +
		"|---|---|---|---|---|---|---|---|---|\n")
	for _, n := range all.rows {
		b.WriteString(n.String())
	}
	return b.String()
}

// write replaces the last section of a page by the results.
func (all neighbours) write(t *testing.T, page string) {
	t.Helper()
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text, _, found := strings.Cut(string(old), resultsTitle)
	if !found {
		t.Fatalf("%s has no section %q", page, resultsTitle)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s\n%s\n\n", text, resultsTitle, all.machine)
	b.WriteString("Times are medians and 99th percentiles in milliseconds. Answers are those to the attacker, by status; processor\n" +
		"time is that of the server during the abuse, and memory the most that it has had.\n\n")
	b.WriteString(all.String() + "\n| abuse | what the attacker does |\n|---|---|\n")
	for _, n := range all.rows {
		fmt.Fprintf(&b, "| %s | %s |\n", n.name, n.what)
	}
	if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// resultsTitle begins the section of the page that has the results.
const resultsTitle = "## Results\n"

// machine says where and when the test runs, and how busy the machine is at its beginning.
func machine(t *testing.T) string {
	t.Helper()
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatalf("this test needs Linux: %v", err)
	}
	fields := strings.Fields(string(load))
	return fmt.Sprintf("%s, %d processors, %s. Before the first abuse, the load of the machine was %s (the average of a minute).",
		time.Now().Format("2 January 2006"), runtime.NumCPU(), runtime.Version(), fields[0])
}

func TestVerdictOfANeighbour(t *testing.T) {
	t.Parallel()
	calm := sample{runs: 4, times: []time.Duration{20e6, 20e6, 20e6, 60e6}}
	all := func(d time.Duration) sample { return sample{runs: 4, times: []time.Duration{d, d, d, d}} }
	for _, test := range []struct {
		what string
		row  neighbour
		want string
	}{
		{"as before", neighbour{alive: true, during: calm, after: calm, control: calm}, "held"},
		{"good enough", neighbour{alive: true, during: all(50e6), after: all(50e6), control: calm}, "held"},
		{"five times as slow", neighbour{alive: true, during: all(100e6), after: calm, control: calm}, "held"},
		{"slower", neighbour{alive: true, during: all(101e6), after: calm, control: calm}, "**slow**"},
		{"a slow run", neighbour{
			alive: true, during: sample{runs: 2, times: []time.Duration{20e6, 601e6}}, after: calm, control: calm,
		}, "**slow**"},
		{"slow afterwards", neighbour{alive: true, during: calm, after: all(51e6), control: calm}, "**slow**"},
		{"a busy machine", neighbour{alive: true, during: all(200e6), after: calm, control: all(200e6)}, "unclear: the control was as slow"},
		{"a run is missing", neighbour{
			alive: true, during: sample{runs: 5, times: calm.times}, after: calm, control: calm,
		}, "**wrong**"},
		{"a run is missing right after", neighbour{
			alive: true, during: calm, recovering: sample{runs: 5, times: calm.times}, after: calm, control: calm,
		}, "**wrong**"},
		{"no run", neighbour{alive: true, during: sample{runs: 5}, after: calm, control: calm}, "**wrong**"},
		{"a dead server", neighbour{during: calm, after: calm, control: calm}, "**wrong**"},
	} {
		test.row.before, test.row.controlBefore = calm, calm
		if got := test.row.verdict(); got != test.want {
			t.Errorf("%s: got %q, want %q", test.what, got, test.want)
		}
	}
}
