package testdb

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Measure calls a function in the loop of a benchmark. It reports the allocations of a call, and the processor time
// that this process and the connections of the pool's database in Postgres take for each of the operations of a call.
// Postgres must be on this machine.
func Measure(b *testing.B, pool *pgxpool.Pool, operations int, call func()) {
	b.Helper()
	call() // prepares statements and fills caches
	b.ReportAllocs()
	process, postgres := processTime(b), postgresTime(b, pool)
	for b.Loop() {
		call()
	}
	n := float64(b.N * operations)
	perOperation := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / n }
	b.ReportMetric(perOperation(processTime(b)-process), "server-µs")
	b.ReportMetric(perOperation(postgresTime(b, pool)-postgres), "postgres-µs")
	b.ReportMetric(n/b.Elapsed().Seconds(), "/s")
}

// processTime returns how long processors have worked for this process.
func processTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// postgresTime returns how long processors have worked for the open connections of the pool's database.
func postgresTime(b *testing.B, pool *pgxpool.Pool) (total time.Duration) {
	b.Helper()
	rows, err := pool.Query(b.Context(), `SELECT pid FROM pg_stat_activity WHERE datname = current_database()`)
	if err != nil {
		b.Fatal(err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		b.Fatal(err)
	}
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		if err != nil {
			b.Fatal(err)
		}
		var worked time.Duration
		if _, err := fmt.Sscan(string(text), &worked); err != nil {
			b.Fatal(err)
		}
		total += worked
	}
	return total
}
