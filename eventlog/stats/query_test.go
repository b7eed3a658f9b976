package stats

import (
	mrand "math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRecentFailures compares the last hour with the same time of the days before.
func TestRecentFailures(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pass(25 * time.Minute)
	now := f.Reader.now()
	add := func(workflow string, at time.Time, count int) {
		t.Helper()
		if _, err := f.pool.Exec(t.Context(), `
			INSERT INTO stats (project, workflow, metric, label, width, at, took, count)
			SELECT 'default', $1, 'run_failed', 'shop', width, date_bin(make_interval(mins => width), $2, 'epoch'), 1, $3
			FROM (VALUES (1), (60)) AS w (width)
			ON CONFLICT (project, width, metric, at, workflow, label, took) DO UPDATE SET count = stats.count + excluded.count`,
			workflow, at, count); err != nil {
			t.Fatal(err)
		}
	}
	hour := now.Truncate(time.Hour)
	add("refund", now, 5)
	add("refund", now.Add(-59*time.Minute), 7)
	add("refund", now.Add(-60*time.Minute), 100) // too old
	add("refund", hour.AddDate(0, 0, -1).Add(25*time.Minute), 3)
	add("refund", hour.AddDate(0, 0, -1).Add(40*time.Minute), 4) // of the same hour
	add("refund", hour.AddDate(0, 0, -3), 6)
	add("refund", hour.AddDate(0, 0, -3).Add(2*time.Hour), 100) // later in the day
	add("refund", hour.AddDate(0, 0, -8), 100)                  // too long ago
	add("new", now, 2)
	add("well", hour.AddDate(0, 0, -1), 9)
	got, err := f.RecentFailures(t.Context(), home)
	want := []RecentFailures{{"new", 2, 0}, {"refund", 12, 7}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("(-want +got):\n%s%v", diff, err)
	}
}

// TestPercentiles compares them with those of the durations themselves.
func TestPercentiles(t *testing.T) {
	t.Parallel()
	random := mrand.New(mrand.NewPCG(1, 2))
	var all []time.Duration
	h := histogram{}
	for range 5000 {
		d := time.Duration(random.ExpFloat64() * float64(3*time.Second))
		all = append(all, max(d, time.Millisecond))
		class := int16(1)
		for upperBound(class) < d {
			class++
		}
		h[class]++
	}
	slices.Sort(all)
	got := h.percentiles()
	wantAbout(t, got.P50, all[len(all)/2])
	wantAbout(t, got.P95, all[len(all)*95/100])
	wantAbout(t, got.P99, all[len(all)*99/100])
	if (histogram{}).percentiles() != nil {
		t.Error("percentiles of nothing")
	}
}
