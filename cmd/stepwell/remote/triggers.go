package remote

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type triggersCmd struct {
	List    listCmd[triggerRow, none]        `cmd:"" at:"triggers" help:"List the triggers."`
	Show    objectCmd[triggerRow, named]     `cmd:"" at:"triggers/*" help:"Show a trigger, and what became of the last events."`
	Put     putTriggerCmd                    `cmd:"" at:"PUT triggers/*" help:"Create or replace a trigger."`
	Delete  removeCmd[names]                 `cmd:"" at:"DELETE triggers/*" help:"Delete triggers; their runs go on."`
	Pause   objectCmd[triggerRow, namedNote] `cmd:"" at:"POST triggers/*/pause" help:"Stop a trigger until it is resumed."`
	Resume  objectCmd[triggerRow, named]     `cmd:"" at:"POST triggers/*/resume" help:"Let a paused trigger go on with the next event."`
	History listCmd[triggerEventRow, named]  `cmd:"" at:"triggers/*/history" help:"List what became of the events of a trigger."`
}

type triggerRow api.Trigger

func (g triggerRow) columns() []field {
	event, _ := g.event()
	state := "active"
	if !g.PausedAt.IsZero() {
		state = "paused"
	}
	return []field{{"name", g.Name}, {"on", event}, {"starts", g.Start.Workflow}, {"state", state}}
}

// event returns what the trigger waits for in words, and the condition.
func (g triggerRow) event() (text, condition string) {
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

func (g triggerRow) details() []field {
	_, condition := g.event()
	fields := []field{
		{"condition", condition}, {"path", g.Path}, {"deployment", g.Start.Deployment}, {"key", g.Start.Key},
		{"on conflict", g.Start.OnConflict}, {"timeout", g.Start.Timeout}, {"paused", g.PausedAt}, {"note", g.PauseNote},
	}
	for _, e := range g.Last {
		fields = append(fields, field{e.Event, strings.TrimSpace(e.Decision + " " + e.RunID + " " + e.Reason)})
	}
	return fields
}

type putTriggerCmd struct {
	named
	Workflow   string            `arg:"" field:"workflow" help:"The workflow of the runs that it starts."`
	Signal     string            `field:"-" placeholder:"NAME" xor:"on" required:"" help:"Wait for the signals of this name."`
	Webhook    bool              `field:"-" xor:"on" required:"" help:"Wait for requests to a URL of its own."`
	RunEnded   string            `field:"-" placeholder:"WORKFLOW" xor:"on" required:"" help:"Wait for the ends of its runs."`
	Condition  string            `field:"-" placeholder:"CEL" help:"What must be true of the event."`
	Status     []string          `field:"-" enum:"completed,failed,cancelled" placeholder:"STATUS" help:"${endings}"`
	Verify     string            `field:"-" placeholder:"SCHEME" help:"How requests are signed, such as github or stripe."`
	Secret     string            `field:"-" placeholder:"NAME" help:"The secret with which they are signed."`
	Respond    string            `field:"-" placeholder:"TIME" help:"How long a sender waits for what the run responds."`
	Input      jsonFlag          `short:"i" placeholder:"JSON" help:"The runs' input instead of the event: ${json}."`
	Deployment string            `placeholder:"ID" help:"${target}"`
	Attr       map[string]string `field:"attributes" mapsep:"none" placeholder:"KEY=VALUE" help:"An attribute; may be repeated."`
	UniqueKey  string            `name:"key" placeholder:"KEY" help:"The key of the runs: one at a time has it."`
	OnConflict string            `enum:"${conflicts}" default:"" placeholder:"HOW" help:"${keyTaken}"`
	Timeout    string            `placeholder:"TIME" help:"How long a run may take."`
	Delay      string            `placeholder:"TIME" help:"Start a run so long after its event."`

	IdempotencyKey string `placeholder:"KEY" help:"Start one run for events with the same one."`
	limitFlags
	collectFlags
}

// Run stores the trigger.
func (c putTriggerCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
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
	r.params = jsonBody{"on": on, "start": c.addTo(c.addLimits(r.params))}
	return printAnswer[triggerRow](ctx, s, r)
}

type triggerEventRow api.TriggerEvent

func (e triggerEventRow) columns() []field {
	return []field{
		{"decided", timestamp(e.DecidedAt.Time)}, {"event", e.Event}, {"decision", e.Decision}, {"run", e.RunID},
		{"reason", e.Reason},
	}
}

type collectionsCmd struct {
	List  listCmd[collectionRow, none]         `cmd:"" at:"collections" help:"List the runs that collect starts."`
	Show  objectCmd[collectionRow, identified] `cmd:"" at:"collections/*" help:"Show a run that collects starts, and why it has not started."`
	Flush changeCmd[identified]                `cmd:"" at:"POST collections/*/flush" says:"$id" help:"Start the run of a collection now."`
	Drop  removeCmd[ids]                       `cmd:"" at:"DELETE collections/*" help:"Drop collections with their starts; their runs will never start."`
}

// rule says how the starts are collected.
func (c collectionRow) rule() string {
	switch {
	case c.Debounce != nil:
		return fmt.Sprintf("debounce %s, max %s, keep %s", c.Debounce.Quiet, c.Debounce.Max, c.Debounce.Keep)
	case c.Batch != nil:
		return fmt.Sprintf("batch of %d, wait %s, bytes %d", c.Batch.Size, c.Batch.Wait, c.Batch.Bytes)
	default:
		return ""
	}
}

// startsKey returns the key that the starts have in common.
func (c collectionRow) startsKey() string {
	switch {
	case c.Debounce != nil:
		return c.Debounce.Key
	case c.Batch != nil:
		return c.Batch.Key
	default:
		return ""
	}
}

type collectionRow api.Collection

func (c collectionRow) columns() []field {
	return []field{
		{"run", c.ID}, {"workflow", c.Workflow}, {"rule", c.rule()}, {"key", c.startsKey()},
		{"starts", c.Count}, {"due", c.DueAt},
	}
}

func (c collectionRow) details() []field {
	fields := []field{
		{"deployment", c.Deployment}, {"run key", c.Key}, {"timeout", c.Timeout}, {"bytes", c.Bytes},
		{"first", c.FirstAt}, {"last", c.LastAt},
	}
	for _, r := range c.Why {
		fields = append(fields, field{"why", r.Text})
	}
	return fields
}

// collectFlags are the flags that make one run of several starts.
type collectFlags struct {
	Debounce map[string]string `field:"-" mapsep:"," xor:"collect" placeholder:"quiet=10s,key=KEY" help:"${debounce}"`
	Batch    map[string]string `field:"-" mapsep:"," xor:"collect" placeholder:"size=100,wait=1m" help:"${batch}"`
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
