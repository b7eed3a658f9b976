package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc/PID/stat: USER_HZ, which is 100 on every architecture of Linux that Go runs on.
const tick = 10 * time.Millisecond

// stat is the content of /proc/PID/stat.
type stat struct {
	PID, Parent int
	// Own is the CPU time of the process, Children that of the ended children it has waited for.
	Own, Children time.Duration
}

// parseStat parses /proc/PID/stat. The second field is the program's name in parentheses, which may itself contain
// spaces and parentheses.
func parseStat(line []byte) (stat, error) {
	name := bytes.LastIndexByte(line, ')')
	fields := strings.Fields(string(line[name+1:]))
	const state, parent, utime, cstime = 0, 1, 11, 14 // counted after the name
	if name < 0 || len(fields) <= cstime {
		return stat{}, fmt.Errorf("invalid stat of a process: %.100q", line)
	}
	var s stat
	var err error
	if s.PID, err = strconv.Atoi(string(line[:max(0, bytes.IndexByte(line, ' '))])); err != nil {
		return stat{}, fmt.Errorf("invalid stat of a process: %w", err)
	}
	if s.Parent, err = strconv.Atoi(fields[parent]); err != nil {
		return stat{}, fmt.Errorf("invalid stat of a process: %w", err)
	}
	var ticks [4]int64 // utime, stime, cutime, cstime
	for i := range ticks {
		if ticks[i], err = strconv.ParseInt(fields[utime+i], 10, 64); err != nil {
			return stat{}, fmt.Errorf("invalid stat of a process: %w", err)
		}
	}
	s.Own = time.Duration(ticks[0]+ticks[1]) * tick
	s.Children = time.Duration(ticks[2]+ticks[3]) * tick
	return s, nil
}

func readStat(pid int) (stat, error) {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, fmt.Errorf("read CPU time: %w", err)
	}
	return parseStat(line)
}

// processorTime returns the CPU time of the process and its children, both running ones and those it has waited for.
func processorTime(pid int) (time.Duration, error) {
	for {
		before, err := readStat(pid)
		if err != nil {
			return 0, err
		}
		sum, err := timeWithChildren(before)
		if err != nil {
			return 0, err
		}
		after, err := readStat(pid)
		if err != nil {
			return 0, err
		}
		if before.Children == after.Children {
			return sum, nil
		}
		// A child ended in the meantime, and may be missing or counted twice. Try again.
	}
}

func timeWithChildren(parent stat) (time.Duration, error) {
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	var all []stat
	for _, name := range names {
		line, err := os.ReadFile(name)
		if err != nil {
			continue // the process has ended
		}
		if s, err := parseStat(line); err == nil {
			all = append(all, s)
		}
	}
	return withChildren(parent, all), nil
}

// withChildren adds the CPU time of running children. Grandchildren are included only after their parent has waited for
// them; Postgres has none.
func withChildren(parent stat, all []stat) time.Duration {
	sum := parent.Own + parent.Children
	for _, s := range all {
		if s.Parent == parent.PID {
			sum += s.Own + s.Children
		}
	}
	return sum
}
