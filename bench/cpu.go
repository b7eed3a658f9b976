package main

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// tick is the unit of /proc/PID/stat: USER_HZ, which is 100 on every architecture of Linux that Go runs on.
const tick = 10 * time.Millisecond

// own is the CPU time of a process, and ended that of the ended children it has waited for.
func own(s procfs.ProcStat) time.Duration   { return time.Duration(s.UTime+s.STime) * tick }
func ended(s procfs.ProcStat) time.Duration { return time.Duration(s.CUTime+s.CSTime) * tick }

func readStat(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, fmt.Errorf("read CPU time: %w", err)
	}
	s, err := p.Stat()
	if err != nil {
		return procfs.ProcStat{}, fmt.Errorf("read CPU time: %w", err)
	}
	return s, nil
}

// processorTime returns the CPU time of the process and its children, both running ones and those it has waited for.
// Grandchildren are included only after their parent has waited for them; Postgres has none.
func processorTime(pid int) (time.Duration, error) {
	for {
		before, err := readStat(pid)
		if err != nil {
			return 0, err
		}
		all, err := procfs.AllProcs()
		if err != nil {
			return 0, fmt.Errorf("read CPU time: %w", err)
		}
		sum := own(before) + ended(before)
		for _, p := range all {
			if s, err := p.Stat(); err == nil && s.PPID == pid { // else it has ended
				sum += own(s) + ended(s)
			}
		}
		after, err := readStat(pid)
		if err != nil {
			return 0, err
		}
		if ended(before) == ended(after) {
			return sum, nil
		}
		// A child ended in the meantime, and may be missing or counted twice. Try again.
	}
}
