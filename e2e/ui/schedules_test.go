package ui

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestSchedulePages makes, uses, changes and deletes a schedule, at the root and below a path.
func TestSchedulePages(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	eachBase(t, func(i *installation, admin, guest *tab) {
		addScheduleScene(admin)
		i.triggerScene(admin)
		pauseScene(admin)
		i.editScheduleScene(admin)
		i.backfillScene(admin)
		guestScheduleScene(guest)
		admin.remove()
		admin.shows("There are no schedules")
	})
}

func addScheduleScene(b *tab) {
	b.open("/ui/default/schedules")
	b.shows("There are no schedules")
	b.click("New schedule …")
	b.fill("dialog input[name=name]", "nightly")
	b.fill("dialog input[name=workflow]", "order")
	b.fill("dialog input[name=cron]", "30 2 * *")
	b.fill("dialog input[name=timeZone]", "Asia/Tokyo")
	b.fill("dialog textarea", `{"kind": 9007199254740993}`)
	b.click("More")
	b.fill("dialog input[name=until]", "2099-12-31T00:00:00Z")
	b.fill("dialog input[name=deployment]", "shop")
	b.click("Copy as curl or CLI")
	b.shows("schedules put nightly order --cron '30 2 * *' --time-zone Asia/Tokyo --until 2099-12-31T00:00:00Z --deployment shop")
	b.accessible()
	b.look("schedule-add")
	b.allow("400")
	b.click("Create it")
	b.until("the expression is refused", `document.querySelector("dialog .trouble")`)
	b.fill("dialog input[name=cron]", "30 2 * * *")
	b.click("Create it")
	b.until("five ticks", `document.querySelectorAll(".next-ticks li").length === 5`)
	b.shows("02:30 Asia/Tokyo", "17:30", "active", "9007199254740993", "No tick has been decided yet")
	b.accessible()
}

// triggerScene starts a run twice: the second time the first one has not ended.
func (i *installation) triggerScene(b *tab) {
	b.click("Trigger …")
	b.accessible()
	b.click("Start a run")
	b.rows(1)
	b.shows("started", "until then ticks are skipped")
	b.click("Trigger …")
	b.allow("409")
	b.click("Start a run")
	b.shows("The state does not allow this")
	b.click("Close")
	b.rows(1)
	b.click(short(i.schedule().RunID))
	b.shows("$schedule", "nightly")
	b.open("/ui/default/schedules/nightly")
}

// schedule returns the schedule as the API has it.
func (i *installation) schedule() (s struct {
	RunID, Cron, Deployment string

	Input json.RawMessage
}) {
	i.t.Helper()
	i.call("GET", "/v1/schedules/nightly", nil, &s)
	return s
}

func pauseScene(b *tab) {
	b.pause()
	b.until("no next ticks", `document.querySelectorAll(".next-ticks li").length === 0`)
	b.look("schedule-paused")
	b.resume()
	b.until("five ticks", `document.querySelectorAll(".next-ticks li").length === 5`)
}

// editScheduleScene changes the time. The input keeps its digits.
func (i *installation) editScheduleScene(b *tab) {
	b.click("Edit …")
	b.fill("dialog input[name=cron]", "0 6 * * *")
	b.accessible()
	b.click("Change it")
	b.shows("06:00 Asia/Tokyo")
	if s := i.schedule(); s.Cron != "0 6 * * *" || s.Deployment != "shop" || !strings.Contains(string(s.Input), "9007199254740993") {
		b.t.Errorf("got %+v, want only the time changed", s)
	}
}

// backfillScene starts a backfill whose first run waits for a person, and ends it.
func (i *installation) backfillScene(b *tab) {
	b.click("Backfill …")
	b.fill("dialog input[name=from]", "2026-11-01")
	b.fill("dialog input[name=to]", "yesterday")
	b.shows("Write times as")
	b.fill("dialog input[name=from]", "2026-11-01T00:00:00Z")
	b.fill("dialog input[name=to]", "2026-11-04T00:00:00Z")
	b.accessible()
	b.look("schedule-backfill")
	b.click("Start the runs")
	b.rows(2)
	b.shows("decided up to", "backfill")
	b.seen("schedule")
	b.click("End the backfill …")
	b.click("End it")
	b.until("no backfill", `!document.body.innerText.includes("decided up to")`)
	b.click("Schedules")
	b.rows(1)
	b.shows("nightly", "active", "0 6 * * * Asia/Tokyo", "order", "running")
	b.seen("schedules")
	b.click("nightly")
	b.shows("Past ticks")
}

// guestScheduleScene sees the schedule without its input, and may do nothing.
func guestScheduleScene(b *tab) {
	b.open("/ui/default/schedules/nightly")
	b.rows(2)
	b.shows("Not shown to keys of the role metadata.")
	b.isReadOnly()
	if evaluate[bool](b, `document.documentElement.outerHTML.includes("9007199254740993")`) {
		b.t.Error("the page shows the input to the role metadata")
	}
	b.hasNone("schedules", "There is no schedule with this name")
}
