package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// environment describes the machine and the software of a measurement.
type environment struct {
	Command  string            `json:"command"`
	Short    bool              `json:"short,omitempty"`
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	MemoryGB float64           `json:"memoryGb"`
	Kernel   string            `json:"kernel"`
	Load     string            `json:"load"`  // of the machine before the start
	Fsync    quantiles         `json:"fsync"` // latency of appending 8 kB on the disk of the WAL
	Postgres string            `json:"postgres"`
	Settings map[string]string `json:"settings"`
	Go       string            `json:"go"`
	Commit   string            `json:"commit"`
}

func (b *bench) environment(ctx context.Context) (environment, error) {
	e := environment{
		Command: b.line, Short: b.short, CPU: cpuModel(), Cores: runtime.NumCPU(), MemoryGB: memory(),
		Kernel: firstWords("/proc/sys/kernel/osrelease", 1), Load: firstWords("/proc/loadavg", 3),
		Go: runtime.Version(), Commit: commit(ctx, b.root), Settings: map[string]string{},
	}
	for _, s := range settings {
		var value string
		if err := b.cluster.conn.QueryRow(ctx, `SELECT current_setting($1)`, s[0]).Scan(&value); err != nil {
			return e, fmt.Errorf("read settings: %w", err)
		}
		e.Settings[s[0]] = value
	}
	if err := b.cluster.conn.QueryRow(ctx, `SELECT version()`).Scan(&e.Postgres); err != nil {
		return e, fmt.Errorf("read version of Postgres: %w", err)
	}
	var err error
	e.Fsync, err = fsyncLatency(b.cluster.dir, 100)
	return e, err
}

// fsyncLatency measures an 8 kB append to a file with fsync.
func fsyncLatency(folder string, times int) (quantiles, error) {
	f, err := os.CreateTemp(folder, "fsync-")
	if err != nil {
		return quantiles{}, fmt.Errorf("probe the disk: %w", err)
	}
	defer func() { _, _ = f.Close(), os.Remove(f.Name()) }()
	page, l := make([]byte, 8<<10), newLatencies()
	for range times {
		began := time.Now()
		if _, err = f.Write(page); err == nil {
			err = f.Sync()
		}
		if err != nil {
			return quantiles{}, fmt.Errorf("probe the disk: %w", err)
		}
		l.record(time.Since(began))
	}
	return l.quantiles(), nil
}

func cpuModel() string { return field("/proc/cpuinfo", "model name") }

// memory returns the machine's memory in GB, or 0 if unknown.
func memory() float64 {
	kb, _ := strconv.ParseFloat(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 64)
	return kb * 1024 / 1e9
}

// field returns the first value for the name in a file with lines "name: value", or "unknown".
func field(file, name string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func firstWords(file string, n int) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	words := strings.Fields(string(data))
	return strings.Join(words[:min(n, len(words))], " ")
}

// commit returns the Git commit of the sources, presumably that of the binary.
func commit(ctx context.Context, root string) string {
	out, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
