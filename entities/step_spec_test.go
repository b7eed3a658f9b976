package entities

import (
	"testing"
	"time"
)

func TestStepPatienceAndDeadline(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	at := func(d time.Duration) *time.Time { at := now.Add(d); return &at }
	for name, tt := range map[string]struct {
		spec StepSpec
		want time.Duration
		late bool
	}{
		"no deadline":             {StepSpec{AttemptTimeoutMS: 1500}, 1500 * time.Millisecond, false},
		"deadline after timeout":  {StepSpec{AttemptTimeoutMS: 1500, Deadline: at(time.Hour)}, 1500 * time.Millisecond, false},
		"deadline before timeout": {StepSpec{AttemptTimeoutMS: 1500, Deadline: at(time.Second)}, time.Second, false},
		"deadline now":            {StepSpec{AttemptTimeoutMS: 1500, Deadline: at(0)}, 0, true},
		"deadline long past":      {StepSpec{AttemptTimeoutMS: 1500, Deadline: at(-time.Hour)}, 0, true},
	} {
		if got, late := tt.spec.AttemptTimeout(now), tt.spec.Late(now); got != tt.want || late != tt.late {
			t.Errorf("%s: patience %s, late %v; want %s, %v", name, got, late, tt.want, tt.late)
		}
	}
}
