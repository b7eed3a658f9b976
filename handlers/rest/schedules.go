package rest

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/starts/schedule"
	"github.com/stepwell-dev/stepwell/why"
)

// shownTicks is how many of the next ticks a schedule shows.
const shownTicks = 5

// scheduleSpec returns what a request says about a schedule, with the defaults.
func scheduleSpec(b api.ScheduleSpec) (s schedule.Spec, err error) {
	s = schedule.Spec{
		Cron: b.Cron, TimeZone: b.TimeZone, Workflow: b.Workflow, Deployment: b.Deployment, Input: b.Input,
		Attributes: b.Attributes, Overlap: cmp.Or(schedule.Overlap(b.Overlap), schedule.OverlapSkip),
		CatchUp: cmp.Or(schedule.CatchUp(b.CatchUp), schedule.CatchUpLatest), CatchUpWindow: schedule.DefaultWindow,
	}
	if s.Deployment == latest {
		s.Deployment = ""
	}
	s.FromAt, s.UntilAt = instantOf(b.From), instantOf(b.Until)
	for _, d := range []struct {
		field, text string
		into        *time.Duration
	}{
		{"every", b.Every, &s.Every}, {"timeout", b.Timeout, &s.Timeout}, {"jitter", b.Jitter, &s.Jitter},
		{"catchUpWindow", b.CatchUpWindow, &s.CatchUpWindow},
	} {
		if d.text == "" {
			continue
		}
		if *d.into, err = durationField(d.field, d.text, maxSpan); err != nil {
			return s, err
		}
	}
	return s, checkIDField("deployment", s.Deployment)
}

// scheduleJSON encodes a schedule. Clients that may not see payloads do not see the input.
func (r *request) scheduleJSON(s schedule.Schedule) api.Schedule {
	v := api.Schedule{
		Name: s.Name, Cron: s.Cron, Every: duration(s.Every), TimeZone: s.TimeZone, Workflow: s.Workflow,
		Deployment: s.Deployment, Attributes: s.Attributes, Timeout: duration(s.Timeout), Overlap: string(s.Overlap),
		CatchUp: string(s.CatchUp), CatchUpWindow: duration(s.CatchUpWindow), Jitter: duration(s.Jitter),
		From: api.InstantOf(s.FromAt), Until: api.InstantOf(s.UntilAt), PausedAt: optionalTime(s.PausedAt),
		PauseNote: s.PauseNote, NextAt: optionalTime(s.NextAt), WaitingAt: optionalTime(s.WaitingAt),
		RunID: string(s.RunID), CreatedAt: timestamp(s.CreatedAt), UpdatedAt: timestamp(s.UpdatedAt),
	}
	if r.payloads() == read.WithPayloads {
		v.Input = s.Input
	}
	if s.WaitingAt != nil {
		v.Waiting = int64(1 + len(s.WaitingMore))
	}
	if s.BackfillAt != nil {
		v.Backfill = &api.Backfill{
			At: timestamp(*s.BackfillAt), Until: timestamp(*s.BackfillUntil), Repeat: s.BackfillRepeat,
			RunID: string(s.BackfillRunID),
		}
	}
	return v
}

// addRunStatuses sets the status of the last run of each schedule, in one query. A run that retention has deleted has
// none.
func (s *Server) addRunStatuses(r *request, schedules []api.Schedule) error {
	var ids []entities.RunID
	for _, v := range schedules {
		if v.RunID != "" {
			ids = append(ids, entities.RunID(v.RunID))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	runs, err := store.RunsByID(r.ctx(), s.Reader, r.project(), ids)
	if err != nil {
		return err
	}
	statuses := map[string]api.RunStatus{}
	for _, run := range runs {
		statuses[string(run.ID)] = api.RunStatus(run.Status)
	}
	for i := range schedules {
		schedules[i].RunStatus = statuses[schedules[i].RunID]
	}
	return nil
}

// duration returns a duration as people write it: 24h, and nothing for 0.
func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// newStartReasonJSON encodes why a schedule starts no run, or the run of a collection has not started.
func newStartReasonJSON(r why.StartReason) api.StartReason {
	return api.StartReason{
		Kind: string(r.Kind), Text: r.Text, Since: optionalTime(r.Since), At: optionalTime(r.At), RunID: string(r.RunID),
		MessageID: r.MessageID,
	}
}

// newTickJSON encodes the decision about a tick.
func newTickJSON(t schedule.Tick) api.Tick {
	v := api.Tick{
		Kind: string(t.Kind), At: timestamp(t.At), Count: t.Count, Decision: string(t.Decision), RunID: string(t.RunID),
		Reason: t.Reason, DecidedAt: timestamp(t.DecidedAt),
	}
	if t.Count > 1 {
		v.LastAt = optionalTime(&t.LastAt)
	}
	return v
}

func (r *request) scheduleName() string {
	return r.pathAs("name", "schedule name", entities.ValidateName)
}

func (s *Server) listSchedules(r *request) error {
	page := r.page(oldestFirst)
	return answer(r, func() (v api.Page[api.Schedule], err error) {
		schedules, cursor, err := schedule.List(r.ctx(), s.Reader, r.project(), page)
		if err != nil {
			return v, err
		}
		v = api.Page[api.Schedule]{Data: encodeAll(schedules, r.scheduleJSON), Cursor: cursor}
		return v, s.addRunStatuses(r, v.Data)
	})
}

// getSchedule answers with a schedule, its next ticks, and why it starts nothing if that is so.
func (s *Server) getSchedule(r *request) error {
	name := r.scheduleName()
	return answer(r, func() (v api.Schedule, err error) {
		f, err := why.ReadSchedule(r.ctx(), s.Reader, r.project(), name)
		if err != nil {
			return v, err
		}
		one := []api.Schedule{r.scheduleJSON(f.Schedule)}
		if err := s.addRunStatuses(r, one); err != nil {
			return v, err
		}
		v = one[0]
		v.Why = encodeAll(why.ExplainSchedule(f), newStartReasonJSON)
		if timing, err := f.Schedule.Timing(); err == nil && f.Schedule.PausedAt == nil {
			v.Next = encodeAll(timing.Upcoming(f.Schedule.DecidedUntil, shownTicks), timestamp)
		}
		return v, nil
	})
}

func (s *Server) putSchedule(r *request) error {
	var body api.ScheduleSpec
	name := r.scheduleName()
	r.body(&body)
	spec, err := scheduleSpec(body)
	r.fail(err)
	return answerAs(r, r.scheduleJSON, func() (schedule.Schedule, error) {
		sched, created, err := s.Scheduler.Put(r.ctx(), r.project(), name, spec)
		r.setCreated(created)
		return sched, err
	})
}

func (s *Server) removeSchedule(r *request) error {
	return deleteOne(r, r.scheduleName(), s.Scheduler.Delete)
}

func (s *Server) pauseSchedule(r *request) error {
	var body api.PauseScheduleBody
	name := r.scheduleName()
	r.optionalBody(&body)
	return answerAs(r, r.scheduleJSON, func() (schedule.Schedule, error) {
		return s.Scheduler.Pause(r.ctx(), r.project(), name, body.Note)
	})
}

func (s *Server) resumeSchedule(r *request) error {
	return answerOne(r, r.scheduleName(), r.scheduleJSON, s.Scheduler.Resume)
}

// triggerSchedule starts a run of the schedule now, and answers with the tick.
func (s *Server) triggerSchedule(r *request) error {
	name := r.scheduleName()
	return answerAs(r, newTickJSON, func() (schedule.Tick, error) {
		tick, err := s.Scheduler.Trigger(r.ctx(), r.project(), name)
		if err == nil {
			r.setCreatedAt(runPath(tick.RunID))
		}
		return tick, err
	})
}

// backfillSchedule orders runs for ticks of the past.
func (s *Server) backfillSchedule(r *request) error {
	var body api.BackfillScheduleBody
	name := r.scheduleName()
	r.body(&body)
	from, to := body.From.Time, body.To.Time
	if from.IsZero() || to.IsZero() {
		r.fail(badField("from", "give from and to"))
	}
	r.setStatus(http.StatusAccepted)
	return answerAs(r, r.scheduleJSON, func() (schedule.Schedule, error) {
		return s.Scheduler.Backfill(r.ctx(), r.project(), name, from, to, body.Repeat)
	})
}

func (s *Server) endBackfill(r *request) error {
	return answerOne(r, r.scheduleName(), r.scheduleJSON, s.Scheduler.EndBackfill)
}

func (s *Server) listTicks(r *request) error {
	name, page := r.scheduleName(), r.page(newestFirst)
	return answerPage(r, newTickJSON, func() ([]schedule.Tick, string, error) {
		sched, err := schedule.ByName(r.ctx(), s.Reader, r.project(), name)
		if err != nil {
			return nil, "", err
		}
		return schedule.ListTicks(r.ctx(), s.Reader, sched.ID, page)
	})
}
