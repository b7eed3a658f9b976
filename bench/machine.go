package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/procfs"
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
		Command: b.line, Short: b.short, Cores: runtime.NumCPU(), Go: runtime.Version(), Commit: commit(ctx, b.root),
		Settings: map[string]string{},
	}
	if err := e.readMachine(); err != nil {
		return e, fmt.Errorf("read what the machine is: %w", err)
	}
	for name := range settings {
		var value string
		if err := b.cluster.conn.QueryRow(ctx, `SELECT current_setting($1)`, name).Scan(&value); err != nil {
			return e, fmt.Errorf("read settings: %w", err)
		}
		e.Settings[name] = value
	}
	if err := b.cluster.conn.QueryRow(ctx, `SELECT version()`).Scan(&e.Postgres); err != nil {
		return e, fmt.Errorf("read version of Postgres: %w", err)
	}
	var err error
	e.Fsync, err = fsyncLatency(b.cluster.dir, 100)
	return e, err
}

// readMachine reads what the kernel says about the machine.
func (e *environment) readMachine() error {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return err //nolint:wrapcheck // environment wraps it
	}
	processors, err1 := fs.CPUInfo()
	memory, err2 := fs.Meminfo()
	load, err3 := fs.LoadAvg()
	kernel, err4 := os.ReadFile("/proc/sys/kernel/osrelease")
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	if len(processors) > 0 {
		e.CPU = processors[0].ModelName
	}
	if memory.MemTotalBytes != nil {
		e.MemoryGB = float64(*memory.MemTotalBytes) / 1e9
	}
	e.Kernel = strings.TrimSpace(string(kernel))
	e.Load = fmt.Sprintf("%.2f %.2f %.2f", load.Load1, load.Load5, load.Load15)
	return nil
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

// commit returns the Git commit of the sources, presumably that of the binary.
func commit(ctx context.Context, root string) string {
	out, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
