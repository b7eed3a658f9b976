package share

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	t.Parallel()
	type read struct {
		after time.Duration
		bytes int
	}
	for _, tt := range []struct {
		name  string
		reads []read
		want  time.Duration
	}{
		{"nothing sent", []read{{10 * time.Second, 0}}, 0},
		{"a byte a second", []read{{5 * time.Second, 5}, {5 * time.Second, 5}}, 10 * time.Millisecond},
		{"exactly the rate", []read{{9 * time.Second, 9000}, {9 * time.Second, 9000}}, 10 * time.Second},
		{"much at once", []read{{0, 100 << 20}, {29 * time.Second, 0}}, time.Second},
	} {
		p := Pace{Credit: 10 * time.Second, Most: 30 * time.Second, Rate: 1000}
		for _, r := range tt.reads {
			p.Received(r.after, r.bytes)
		}
		if p.Credit != tt.want {
			t.Errorf("%s: %s of credit are left, want %s", tt.name, p.Credit, tt.want)
		}
	}
}
