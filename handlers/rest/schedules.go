package rest

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/starts/schedule"
	"github.com/stepwell-dev/stepwell/why"
)

// shownTicks is how many of the next ticks a schedule shows.
const shownTicks = 5

// scheduleBody is what a request says about a schedule, and what an answer repeats.
type scheduleBody struct {
	Cron          string            `json:"cron,omitempty"`
	Every         string            `json:"every,omitempty"`
	TimeZone      string            `json:"timeZone,omitempty"`
	From          instant           `json:"from,omitzero"`
	Until         instant           `json:"until,omitzero"`
	Workflow      string            `json:"workflow"`
	Deployment    string            `json:"deployment,omitempty"`
	Input         json.RawMessage   `json:"input,omitempty"`
	Attributes    map[string]string `json:"attributes,omitempty"`
	Timeout       string            `json:"timeout,omitempty"`
	Overlap       schedule.Overlap  `json:"overlap"`
	CatchUp       schedule.CatchUp  `json:"catchUp"`
	CatchUpWindow string            `json:"catchUpWindow"`
	Jitter        string            `json:"jitter,omitempty"`
}

// spec returns what the body says, with the defaults.
func (b scheduleBody) spec() (s schedule.Spec, err error) {
	s = schedule.Spec{
		Cron: b.Cron, TimeZone: b.TimeZone, Workflow: b.Workflow, Deployment: b.Deployment, Input: b.Input,
		Attributes: b.Attributes, Overlap: cmp.Or(b.Overlap, schedule.OverlapSkip),
		CatchUp: cmp.Or(b.CatchUp, schedule.CatchUpLatest), CatchUpWindow: schedule.DefaultWindow,
	}
	if s.Deployment == latest {
		s.Deployment = ""
	}
	s.FromAt, s.UntilAt = b.From.optional(), b.Until.optional()
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

// scheduleJSON is the JSON form of a schedule. Clients that may not see payloads do not see the input.
type scheduleJSON struct {
	Name string `json:"name"`
	scheduleBody

	PausedAt  api.Time             `json:"pausedAt,omitzero"`
	PauseNote string               `json:"pauseNote,omitempty"`
	NextAt    api.Time             `json:"nextAt,omitzero"`
	Next      []api.Time           `json:"next,omitempty"`
	WaitingAt api.Time             `json:"waitingAt,omitzero"`
	Waiting   int                  `json:"waiting,omitempty"`
	RunID     entities.RunID       `json:"runId,omitempty"`
	RunStatus entities.RunStatus   `json:"runStatus,omitempty"`
	Backfill  *backfillJSON        `json:"backfill,omitempty"`
	Why       []scheduleReasonJSON `json:"why,omitempty"`
	CreatedAt api.Time             `json:"createdAt"`
	UpdatedAt api.Time             `json:"updatedAt"`
}

// backfillJSON is the JSON form of the backfill under way.
type backfillJSON struct {
	At     api.Time       `json:"at"`
	Until  api.Time       `json:"until"`
	Repeat bool           `json:"repeat"`
	RunID  entities.RunID `json:"runId,omitempty"`
}

func (r *request) scheduleJSON(s schedule.Schedule) scheduleJSON {
	v := scheduleJSON{
		Name: s.Name,
		scheduleBody: scheduleBody{
			Cron: s.Cron, Every: duration(s.Every), TimeZone: s.TimeZone, Workflow: s.Workflow, Deployment: s.Deployment,
			Attributes: s.Attributes, Timeout: duration(s.Timeout), Overlap: s.Overlap, CatchUp: s.CatchUp,
			CatchUpWindow: duration(s.CatchUpWindow), Jitter: duration(s.Jitter),
			From: instantOf(s.FromAt), Until: instantOf(s.UntilAt),
		},
		PausedAt: optionalTime(s.PausedAt), PauseNote: s.PauseNote, NextAt: optionalTime(s.NextAt),
		WaitingAt: optionalTime(s.WaitingAt), RunID: s.RunID,
		CreatedAt: timestamp(s.CreatedAt), UpdatedAt: timestamp(s.UpdatedAt),
	}
	if r.payloads() == read.WithPayloads {
		v.Input = s.Input
	}
	if s.WaitingAt != nil {
		v.Waiting = 1 + len(s.WaitingMore)
	}
	if s.BackfillAt != nil {
		v.Backfill = &backfillJSON{timestamp(*s.BackfillAt), timestamp(*s.BackfillUntil), s.BackfillRepeat, s.BackfillRunID}
	}
	return v
}

// addRunStatuses sets the status of the last run of each schedule, in one query. A run that retention has deleted has
// none.
func (s *Server) addRunStatuses(r *request, schedules []scheduleJSON) error {
	var ids []entities.RunID
	for _, v := range schedules {
		if v.RunID != "" {
			ids = append(ids, v.RunID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	runs, err := store.RunsByID(r.ctx(), s.Reader, r.project(), ids)
	if err != nil {
		return err
	}
	statuses := map[entities.RunID]entities.RunStatus{}
	for _, run := range runs {
		statuses[run.ID] = run.Status
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

// scheduleReasonJSON is the JSON form of why a schedule starts no run.
type scheduleReasonJSON struct {
	Kind      why.ScheduleKind `json:"kind"`
	Text      string           `json:"text"`
	Since     api.Time         `json:"since,omitzero"`
	At        api.Time         `json:"at,omitzero"`
	RunID     entities.RunID   `json:"runId,omitempty"`
	MessageID string           `json:"messageId,omitempty"`
}

func newScheduleReasonJSON(r why.ScheduleReason) scheduleReasonJSON {
	return scheduleReasonJSON{r.Kind, r.Text, optionalTime(r.Since), optionalTime(r.At), r.RunID, r.MessageID}
}

// tickJSON is the JSON form of the decision about a tick.
type tickJSON struct {
	Kind      schedule.Kind     `json:"kind"`
	At        api.Time          `json:"at"`
	LastAt    api.Time          `json:"lastAt,omitzero"`
	Count     int64             `json:"count"`
	Decision  schedule.Decision `json:"decision"`
	RunID     entities.RunID    `json:"runId,omitempty"`
	Reason    string            `json:"reason,omitempty"`
	DecidedAt api.Time          `json:"decidedAt"`
}

func newTickJSON(t schedule.Tick) tickJSON {
	v := tickJSON{
		Kind: t.Kind, At: timestamp(t.At), Count: t.Count, Decision: t.Decision, RunID: t.RunID, Reason: t.Reason,
		DecidedAt: timestamp(t.DecidedAt),
	}
	if t.Count > 1 {
		v.LastAt = optionalTime(&t.LastAt)
	}
	return v
}

func (r *request) scheduleName() string {
	name := r.pathText("name", "schedule name")
	r.fail(inParam("name", entities.ValidateName("schedule name", name)))
	return name
}

func (s *Server) listSchedules(r *request) error {
	page := r.page(oldestFirst)
	return answer(r, func() (v api.Page[scheduleJSON], err error) {
		schedules, cursor, err := schedule.List(r.ctx(), s.Reader, r.project(), page)
		if err != nil {
			return v, err
		}
		v = api.Page[scheduleJSON]{Data: encodeAll(schedules, r.scheduleJSON), Cursor: cursor}
		return v, s.addRunStatuses(r, v.Data)
	})
}

// getSchedule answers with a schedule, its next ticks, and why it starts nothing if that is so.
func (s *Server) getSchedule(r *request) error {
	name := r.scheduleName()
	return answer(r, func() (v scheduleJSON, err error) {
		f, err := why.ReadSchedule(r.ctx(), s.Reader, r.project(), name)
		if err != nil {
			return v, err
		}
		one := []scheduleJSON{r.scheduleJSON(f.Schedule)}
		if err := s.addRunStatuses(r, one); err != nil {
			return v, err
		}
		v = one[0]
		v.Why = encodeAll(why.ExplainSchedule(f), newScheduleReasonJSON)
		if timing, err := f.Schedule.Timing(); err == nil && f.Schedule.PausedAt == nil {
			v.Next = encodeAll(timing.Upcoming(f.Schedule.DecidedUntil, shownTicks), timestamp)
		}
		return v, nil
	})
}

func (s *Server) putSchedule(r *request) error {
	var body scheduleBody
	name := r.scheduleName()
	if r.body(&body); r.err != nil {
		return r.err
	}
	spec, err := body.spec()
	if err != nil {
		return err
	}
	sched, created, err := s.Scheduler.Put(r.ctx(), r.project(), name, spec)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return r.JSON(status, r.scheduleJSON(sched))
}

func (s *Server) removeSchedule(r *request) error {
	return deleteOne(r, r.scheduleName(), s.Scheduler.Delete)
}

func (s *Server) pauseSchedule(r *request) error {
	var body struct {
		Note string `json:"note"`
	}
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
	if r.err != nil {
		return r.err
	}
	tick, err := s.Scheduler.Trigger(r.ctx(), r.project(), name)
	if err != nil {
		return err
	}
	r.Response().Header().Set(echo.HeaderLocation, "/v1/runs/"+string(tick.RunID))
	return r.JSON(http.StatusCreated, newTickJSON(tick))
}

// backfillSchedule orders runs for ticks of the past.
func (s *Server) backfillSchedule(r *request) error {
	var body struct {
		From   instant `json:"from"`
		To     instant `json:"to"`
		Repeat bool    `json:"repeat"`
	}
	name := r.scheduleName()
	r.body(&body)
	from, to := time.Time(body.From), time.Time(body.To)
	if from.IsZero() || to.IsZero() {
		r.fail(badField("from", "give from and to"))
	}
	if r.err != nil {
		return r.err
	}
	sched, err := s.Scheduler.Backfill(r.ctx(), r.project(), name, from, to, body.Repeat)
	if err != nil {
		return err
	}
	return r.JSON(http.StatusAccepted, r.scheduleJSON(sched))
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
