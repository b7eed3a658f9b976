package queue

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// BenchmarkSendToDelivery measures the time from the call of Send to the call of the function on an idle system, with
// sender and worker in different processes.
func BenchmarkSendToDelivery(b *testing.B) {
	dsn := testdb.New(b)
	sender, receiver := open(b, dsn), open(b, dsn)
	arrived := make(chan call)
	a := newApp(b, func(_ http.ResponseWriter, _ *http.Request, c call) { arrived <- c })
	receiver.register(b, deployment, a.URL)
	receiver.worker(b)
	var took []time.Duration
	step := func() {
		before := time.Now()
		sender.send(b)
		c := <-arrived
		took = append(took, time.Since(before))
		receiver.ack(b, c)
	}
	step() // warm-up: River starts, connections are made
	took = nil
	for b.Loop() {
		step()
		b.StopTimer()
		<-time.After(20 * time.Millisecond) // idle again
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(took[len(took)/2].Seconds()*1e3, "ms-p50")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1e3, "ms-p99")
}

// BenchmarkDelay measures how late a delayed message is.
func BenchmarkDelay(b *testing.B) {
	r := open(b, testdb.New(b))
	late := make(chan time.Duration)
	a := newApp(b, func(_ http.ResponseWriter, h *http.Request, c call) {
		var d time.Duration
		if err := r.pool.QueryRow(h.Context(), `
			SELECT clock_timestamp() - created_at FROM messages WHERE id = $1`, c.id()).Scan(&d); err != nil {
			b.Error(err)
		}
		r.ack(b, c)
		late <- d
	})
	r.register(b, deployment, a.URL)
	r.worker(b)
	const delay = 100 * time.Millisecond
	var sum time.Duration
	n := 0
	for b.Loop() {
		r.send(b, delayed(delay))
		sum += <-late - delay
		n++
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(sum.Seconds()*1e3/float64(n), "ms-late")
}

// BenchmarkThroughput measures messages sent, delivered and acknowledged, from 8 senders to one worker.
func BenchmarkThroughput(b *testing.B) {
	r := open(b, testdb.New(b))
	a := newApp(b, func(_ http.ResponseWriter, _ *http.Request, c call) { r.ack(b, c) })
	r.register(b, deployment, a.URL)
	r.worker(b, func(o *WorkerOptions) { o.Deliveries = 1000 })
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.send(b)
		}
	})
	for range b.N {
		<-a.calls
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

// BenchmarkIdle measures how many transactions a second an idle worker costs the database.
func BenchmarkIdle(b *testing.B) {
	r := open(b, testdb.New(b))
	r.worker(b)
	commits := func() (n float64) {
		r.Scan(b, `SELECT pg_stat_force_next_flush(), xact_commit FROM pg_stat_database WHERE datname = current_database()`,
			nil, nil, &n)
		return n
	}
	<-time.After(2 * time.Second)
	for b.Loop() {
		before := commits()
		<-time.After(10 * time.Second)
		b.ReportMetric((commits()-before)/10, "commits/s")
	}
	b.ReportMetric(0, "ns/op")
}
