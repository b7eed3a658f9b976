package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// measureGoPath runs the Go benchmark of an append, without HTTP, on the same Postgres. The difference to the server is
// the cost of HTTP and encoding.
func measureGoPath(ctx context.Context, b *bench) ([]row, error) {
	var rows []row
	for round := range b.rounds {
		cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkSteps$", "-benchtime", b.benchtime,
			"-count", "1", "./eventlog")
		cmd.Dir = b.root
		cmd.Env = append(os.Environ(), "TEST_DATABASE_URL="+b.cluster.url(admin, admin))
		out, err := cmd.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("go test -bench: %w\n%s", err, out)
		}
		got, err := parseBenchmarks(out)
		if err != nil {
			return nil, err
		}
		if len(got) == 0 {
			return nil, fmt.Errorf("go test -bench printed no results:\n%s", out)
		}
		for _, r := range got {
			r.Round = round + 1
			rows = append(rows, r)
		}
	}
	return rows, nil
}

var benchmarkName = regexp.MustCompile(`^Benchmark\w+/(.+)/clients=(\d+)(?:-\d+)?$`)

// parseBenchmarks parses the output of go test -bench: a name, the number of operations, and pairs of value and unit.
func parseBenchmarks(out []byte) ([]row, error) {
	var rows []row
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		m := benchmarkName.FindStringSubmatch(fields[0])
		if m == nil {
			return nil, fmt.Errorf("unexpected benchmark name: %q", fields[0])
		}
		r := row{Case: "append, " + strings.ReplaceAll(m[1], "_", " "), Variant: "go"}
		r.Clients, _ = strconv.Atoi(m[2]) // digits
		var err error
		if r.Ops, err = strconv.ParseInt(fields[1], 10, 64); err != nil {
			return nil, fmt.Errorf("invalid benchmark result: %w", err)
		}
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("invalid benchmark result: %w", err)
			}
			switch fields[i+1] {
			case "ns/op":
				r.Seconds = v * float64(r.Ops) / 1e9
			case "p50-ms":
				r.Latency.P50 = v
			case "p99-ms":
				r.Latency.P99 = v
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}
