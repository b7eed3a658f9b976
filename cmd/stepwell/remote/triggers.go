package remote

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type triggersCmd struct {
	List    listTriggersCmd   `cmd:"" help:"List the triggers."`
	Show    showTriggerCmd    `cmd:"" help:"Show a trigger, and what became of the last events."`
	Put     putTriggerCmd     `cmd:"" help:"Create or replace a trigger."`
	Delete  deleteTriggerCmd  `cmd:"" help:"Delete a trigger; its runs go on."`
	Pause   pauseTriggerCmd   `cmd:"" help:"Stop a trigger until it is resumed."`
	Resume  resumeTriggerCmd  `cmd:"" help:"Let a paused trigger go on with the next event."`
	History triggerHistoryCmd `cmd:"" help:"List what became of the events of a trigger."`
}

// eventOf returns what a trigger waits for in words, and the condition.
func eventOf(g api.Trigger) (text, condition string) {
	switch on := g.On; {
	case on.Signal != nil:
		return "signal " + on.Signal.Name, on.Signal.Condition
	case on.Webhook != nil:
		return strings.TrimSpace("webhook " + on.Webhook.Verify), on.Webhook.Condition
	case on.RunEnded != nil:
		return "end of " + on.RunEnded.Workflow + ": " + strings.Join(on.RunEnded.Statuses, ", "), on.RunEnded.Condition
	default:
		return "", ""
	}
}

func waitsFor(g api.Trigger) string {
	text, _ := eventOf(g)
	return text
}

// triggerState is a word for what a trigger does.
func triggerState(g api.Trigger) string {
	if g.PausedAt.IsZero() {
		return "active"
	}
	return "paused"
}

var triggerColumns = []column[api.Trigger]{
	{"NAME", func(g api.Trigger) any { return g.Name }},
	{"ON", func(g api.Trigger) any { return waitsFor(g) }},
	{"STARTS", func(g api.Trigger) any { return g.Start.Workflow }},
	{"STATE", func(g api.Trigger) any { return triggerState(g) }},
}

type listTriggersCmd struct{ paging }

// Run lists the triggers.
func (c listTriggersCmd) Run(ctx context.Context, s *Session) error {
	return list(ctx, s, path("triggers"), nil, c.paging, triggerColumns)
}

// triggerName is the argument that names a trigger.
type triggerName struct {
	Name string `arg:"" help:"The trigger's name."`
}

type showTriggerCmd struct{ triggerName }

// Run prints the trigger.
func (c showTriggerCmd) Run(ctx context.Context, s *Session) error {
	return show(ctx, s, path("triggers", c.Name), nil, func(g api.Trigger) []field {
		text, condition := eventOf(g)
		fields := []field{
			{"trigger", g.Name}, {"on", text}, {"condition", condition}, {"path", g.Path}, {"starts", g.Start.Workflow},
			{"deployment", g.Start.Deployment}, {"key", g.Start.Key}, {"on conflict", g.Start.OnConflict},
			{"timeout", g.Start.Timeout}, {"paused", g.PausedAt}, {"note", g.PauseNote},
		}
		for _, e := range g.Last {
			fields = append(fields, field{e.Event, strings.TrimSpace(e.Decision + " " + e.RunID + " " + e.Reason)})
		}
		return fields
	})
}

type putTriggerCmd struct {
	triggerName
	Workflow   string            `arg:"" help:"The workflow of the runs that it starts."`
	Signal     string            `placeholder:"NAME" xor:"on" required:"" help:"Wait for the signals of this name."`
	Webhook    bool              `xor:"on" required:"" help:"Wait for requests to a URL of its own."`
	RunEnded   string            `placeholder:"WORKFLOW" xor:"on" required:"" help:"Wait for the ends of its runs."`
	Condition  string            `placeholder:"CEL" help:"What must be true of the event."`
	Status     []string          `enum:"completed,failed,cancelled" placeholder:"STATUS" help:"${endings}"`
	Verify     string            `placeholder:"SCHEME" help:"How requests are signed, such as github or stripe."`
	Secret     string            `placeholder:"NAME" help:"The secret with which they are signed."`
	Respond    string            `placeholder:"TIME" help:"How long a sender waits for what the run responds."`
	Input      jsonFlag          `short:"i" placeholder:"JSON" help:"The runs' input instead of the event: ${json}."`
	Deployment string            `placeholder:"ID" help:"${target}"`
	Attr       map[string]string `mapsep:"none" placeholder:"KEY=VALUE" help:"An attribute; may be repeated."`
	UniqueKey  string            `name:"key" placeholder:"KEY" help:"The key of the runs: one at a time has it."`
	OnConflict string            `enum:"${conflicts}" default:"" placeholder:"HOW" help:"${keyTaken}"`
	Timeout    string            `placeholder:"TIME" help:"How long a run may take."`
	Delay      string            `placeholder:"TIME" help:"Start a run so long after its event."`

	IdempotencyKey string `placeholder:"KEY" help:"Start one run for events with the same one."`
	limitFlags
	collectFlags
}

// Run stores the trigger.
func (c putTriggerCmd) Run(ctx context.Context, s *Session) error {
	input, err := c.Input.read(s, "--input")
	if err != nil {
		return err
	}
	on := jsonBody{}
	switch {
	case c.Signal != "":
		on["signal"] = jsonBody{"name": c.Signal, "condition": c.Condition}.omitZero()
	case c.RunEnded != "":
		on["runEnded"] = jsonBody{"workflow": c.RunEnded, "statuses": c.Status, "condition": c.Condition}.omitZero()
	default:
		on["webhook"] = jsonBody{
			"verify": c.Verify, "secret": c.Secret, "respond": c.Respond, "condition": c.Condition,
		}.omitZero()
	}
	start := c.addTo(c.addLimits(jsonBody{
		"workflow": c.Workflow, "input": input, "deployment": c.Deployment, "attributes": c.Attr, "key": c.UniqueKey,
		"onConflict": c.OnConflict, "timeout": c.Timeout, "delay": c.Delay, "idempotencyKey": c.IdempotencyKey,
	}.omitZero()))
	return s.changeTrigger(ctx, http.MethodPut, path("triggers", c.Name), jsonBody{"on": on, "start": start})
}

// changeTrigger sends a request that changes a trigger, and prints its state and the path of its webhook.
func (s *Session) changeTrigger(ctx context.Context, method, path string, body any) error {
	var g api.Trigger
	raw, err := s.client.call(ctx, method, path, body, &g)
	if err != nil {
		return err
	}
	text := triggerState(g)
	if g.Path != "" {
		text += ", at " + g.Path
	}
	return s.printResult(raw, "%s is %s", g.Name, text)
}

type deleteTriggerCmd struct{ triggerName }

// Run deletes the trigger.
func (c deleteTriggerCmd) Run(ctx context.Context, s *Session) error {
	return s.client.delete(ctx, path("triggers", c.Name))
}

type pauseTriggerCmd struct {
	triggerName
	Note string `placeholder:"TEXT" help:"The reason, shown with it."`
}

// Run pauses the trigger.
func (c pauseTriggerCmd) Run(ctx context.Context, s *Session) error {
	return s.changeTrigger(ctx, http.MethodPost, path("triggers", c.Name, "pause"), jsonBody{"note": c.Note}.omitZero())
}

type resumeTriggerCmd struct{ triggerName }

// Run resumes the trigger.
func (c resumeTriggerCmd) Run(ctx context.Context, s *Session) error {
	return s.changeTrigger(ctx, http.MethodPost, path("triggers", c.Name, "resume"), nil)
}

var triggerEventColumns = []column[api.TriggerEvent]{
	{"DECIDED", func(e api.TriggerEvent) any { return timestamp(e.DecidedAt.Time) }},
	{"EVENT", func(e api.TriggerEvent) any { return e.Event }},
	{"DECISION", func(e api.TriggerEvent) any { return e.Decision }},
	{"RUN", func(e api.TriggerEvent) any { return e.RunID }},
	{"REASON", func(e api.TriggerEvent) any { return e.Reason }},
}

type triggerHistoryCmd struct {
	triggerName
	paging
}

// Run lists the events.
func (c triggerHistoryCmd) Run(ctx context.Context, s *Session) error {
	return list(ctx, s, path("triggers", c.Name, "history"), nil, c.paging, triggerEventColumns)
}

type collectionsCmd struct {
	List  listCollectionsCmd `cmd:"" help:"List the runs that collect starts."`
	Show  showCollectionCmd  `cmd:"" help:"Show a run that collects starts, and why it has not started."`
	Flush flushCollectionCmd `cmd:"" help:"Start the run of a collection now."`
	Drop  dropCollectionCmd  `cmd:"" help:"Drop a collection with its starts; its run will never start."`
}

// ruleText says how the starts are collected.
func ruleText(c api.Collection) string {
	switch {
	case c.Debounce != nil:
		return fmt.Sprintf("debounce %s, max %s, keep %s", c.Debounce.Quiet, c.Debounce.Max, c.Debounce.Keep)
	case c.Batch != nil:
		return fmt.Sprintf("batch of %d, wait %s, bytes %d", c.Batch.Size, c.Batch.Wait, c.Batch.Bytes)
	default:
		return ""
	}
}

// collectionKey returns the key that the starts have in common.
func collectionKey(c api.Collection) string {
	switch {
	case c.Debounce != nil:
		return c.Debounce.Key
	case c.Batch != nil:
		return c.Batch.Key
	default:
		return ""
	}
}

var collectionColumns = []column[api.Collection]{
	{"RUN", func(c api.Collection) any { return c.ID }},
	{"WORKFLOW", func(c api.Collection) any { return c.Workflow }},
	{"RULE", func(c api.Collection) any { return ruleText(c) }},
	{"KEY", func(c api.Collection) any { return collectionKey(c) }},
	{"STARTS", func(c api.Collection) any { return c.Count }},
	{"DUE", func(c api.Collection) any { return c.DueAt }},
}

type listCollectionsCmd struct{ paging }

// Run lists the collections.
func (c listCollectionsCmd) Run(ctx context.Context, s *Session) error {
	return list(ctx, s, path("collections"), nil, c.paging, collectionColumns)
}

// collectionID is the argument that names a collection.
type collectionID struct {
	ID string `arg:"" help:"The ID of the run."`
}

type showCollectionCmd struct{ collectionID }

// Run prints the collection.
func (c showCollectionCmd) Run(ctx context.Context, s *Session) error {
	return show(ctx, s, path("collections", c.ID), nil, func(g api.Collection) []field {
		fields := []field{
			{"run", g.ID}, {"workflow", g.Workflow}, {"deployment", g.Deployment}, {"run key", g.Key}, {"timeout", g.Timeout},
			{"rule", ruleText(g)}, {"key", collectionKey(g)}, {"starts", g.Count}, {"bytes", g.Bytes}, {"first", g.FirstAt},
			{"last", g.LastAt}, {"due", g.DueAt},
		}
		for _, r := range g.Why {
			fields = append(fields, field{"why", r.Text})
		}
		return fields
	})
}

type flushCollectionCmd struct{ collectionID }

// Run starts the run, and prints its ID.
func (c flushCollectionCmd) Run(ctx context.Context, s *Session) error {
	var r api.Run
	raw, err := s.client.call(ctx, http.MethodPost, path("collections", c.ID, "flush"), nil, &r)
	if err != nil {
		return err
	}
	return s.printResult(raw, "%s", r.ID)
}

type dropCollectionCmd struct{ collectionID }

// Run drops the collection.
func (c dropCollectionCmd) Run(ctx context.Context, s *Session) error {
	return s.client.delete(ctx, path("collections", c.ID))
}

// collectFlags are the flags that make one run of several starts.
type collectFlags struct {
	Debounce map[string]string `mapsep:"," xor:"collect" placeholder:"quiet=10s,key=KEY" help:"${debounce}"`
	Batch    map[string]string `mapsep:"," xor:"collect" placeholder:"size=100,wait=1m" help:"${batch}"`
}

// addTo adds the flags to the body of a request. Numbers become numbers; the server checks the rest.
func (f collectFlags) addTo(body jsonBody) jsonBody {
	for name, flags := range map[string]map[string]string{"debounce": f.Debounce, "batch": f.Batch} {
		if len(flags) == 0 {
			continue
		}
		rule := jsonBody{}
		for field, text := range flags {
			rule[field] = text
			if n, err := strconv.ParseInt(text, 10, 64); err == nil && (field == "size" || field == "bytes") {
				rule[field] = n
			}
		}
		body[name] = rule
	}
	return body
}
