package why

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/starts/schedule"
)

// TestSchedulesAreExplained checks for each reason that its end ends it.
func TestSchedulesAreExplained(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	well := func() ScheduleFacts {
		return ScheduleFacts{
			Schedule: schedule.Schedule{Spec: schedule.Spec{Overlap: schedule.OverlapSkip}, NextAt: &now},
			Work:     &TaskState{ID: "msg_1", DueAt: now},
			Last:     &schedule.Tick{Decision: schedule.Started},
		}
	}
	run := &entities.Run{ID: "wrun_1"}
	for name, tt := range map[string]struct {
		edit func(*ScheduleFacts)
		want string // the kinds, with the runs and messages
		text string
	}{
		"all is well": {func(*ScheduleFacts) {}, "", ""},
		"paused": {
			func(f *ScheduleFacts) { f.Schedule.PausedAt, f.Schedule.PauseNote, f.Work = &now, "we move", nil },
			"paused", "(we move): resume it",
		},
		"parked":   {func(f *ScheduleFacts) { f.Work.ParkedAt = &now }, "parked msg_1", "retry message msg_1"},
		"failing":  {func(f *ScheduleFacts) { f.Work.LastError = "x" }, "task_fails msg_1", "by itself"},
		"skipping": {func(f *ScheduleFacts) { f.Run = run }, "overlap wrun_1", "cancel the run"},
		"allowed":  {func(f *ScheduleFacts) { f.Run, f.Schedule.Overlap = run, schedule.OverlapAllow }, "", ""},
		"waiting":  {func(f *ScheduleFacts) { f.Run, f.Schedule.WaitingAt = run, &now }, "waiting wrun_1", "cancel the run"},
		"waited":   {func(f *ScheduleFacts) { f.Schedule.WaitingAt = &now }, "", ""},
		"refused": {
			func(f *ScheduleFacts) { f.Last = &schedule.Tick{Decision: schedule.Refused, Reason: "no app"} }, "refused", "no app",
		},
		"over": {
			func(f *ScheduleFacts) { f.Schedule.NextAt, f.Schedule.UntilAt = nil, &now }, "no_tick", "put a later until",
		},
		"filling": {
			func(f *ScheduleFacts) { f.Backfilled, f.Schedule.BackfillAt = run, &now }, "backfill wrun_1", "cancel the run",
		},
		"without an end": {func(f *ScheduleFacts) { f.Schedule.NextAt = nil }, "no_tick", "another cron"},
		"several": {
			func(f *ScheduleFacts) { f.Work.LastError, f.Run = "x", run }, "task_fails msg_1, overlap wrun_1", "",
		},
	} {
		f := well()
		tt.edit(&f)
		var got, texts []string
		for _, r := range ExplainSchedule(f) {
			got = append(got, strings.TrimSpace(fmt.Sprint(r.Kind, " ", r.RunID, r.MessageID)))
			texts = append(texts, r.Text)
		}
		if text := strings.Join(got, ", "); text != tt.want || !strings.Contains(strings.Join(texts, "; "), tt.text) {
			t.Errorf("%s: got %s: %q, want %s with %q", name, text, texts, tt.want, tt.text)
		}
	}
}
