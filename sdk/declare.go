package stepwell

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Declaration is something beside its workflows that an app needs on the server: a [Limit], [Schedule] or [Trigger].
// See [App.Declare].
type Declaration interface{ declare() declaration }

// declaration is what the API calls kind/name, with its fields as they are in JSON.
type declaration struct {
	kind, name string
	spec       map[string]any
	err        error
}

// The kinds of declarations, as the API's paths have them.
const (
	kindLimits    = "limits"
	kindSchedules = "schedules"
	kindTriggers  = "triggers"
)

// kinds has the kinds in an order in which none needs one after it.
var kinds = []string{kindLimits, kindSchedules, kindTriggers}

// Limit declares a limit of how many runs or steps there are at once or in a while; see [LimitUse]. At least one of
// PerKey, Total and Rate is needed.
type Limit struct {
	Name string
	// PerKey is how many there may be at once with one key, and Total with all keys together; 0 for any number.
	PerKey, Total int
	// Rate is how many may begin with one key in any Per, from 1s to 720h; 0 for any number. Burst is how many of them
	// may begin at once, 1 by default.
	Rate, Burst int
	Per         time.Duration
	// Fair makes tenants take turns.
	Fair bool
	// OnFull is what a run does that finds no slot: "wait", the default, "reject", "replaceWaiting" or "cancelOldest".
	OnFull string
}

func (l Limit) declare() declaration {
	spec := map[string]any{"perKey": l.PerKey, "total": l.Total, "fair": l.Fair, "onFull": l.OnFull}
	if l.Rate != 0 {
		spec["rate"] = map[string]any{"limit": l.Rate, "per": l.Per.String(), "burst": l.Burst}
	}
	return declaration{kindLimits, l.Name, spec, nil}
}

// Schedule declares when a workflow is started again and again: by Cron or Every.
type Schedule struct {
	Name string
	// Cron has minute, hour, day of month, month and day of week, such as 30 2 * * MON-FRI, on the clock of TimeZone, such
	// as Europe/Berlin; UTC by default.
	Cron, TimeZone string
	// Every is the time between ticks, from 10s to 8784h. Ticks are multiples of it.
	Every time.Duration
	// From and Until are the first and the last moment at which it may tick; zero for no bound.
	From, Until time.Time
	// Overlap is what a tick does while the last run has not ended: "skip", the default, "wait", "waitAll", "cancel" or
	// "allow".
	Overlap string
	// CatchUp says which late ticks start a run: only the "latest", by default, or "all"; if they are not later than
	// CatchUpWindow, 24h by default.
	CatchUp       string
	CatchUpWindow time.Duration
	// Jitter is the time in which the starts are spread, up to 1h.
	Jitter time.Duration
	// Start is what it starts. Its options can be attributes and a timeout.
	Start Planned
}

func (s Schedule) declare() declaration {
	spec, err := s.Start.spec()
	maps.Copy(spec, map[string]any{
		"cron": s.Cron, "timeZone": s.TimeZone, "every": durationText(s.Every), "overlap": s.Overlap, "catchUp": s.CatchUp,
		"catchUpWindow": durationText(s.CatchUpWindow), "jitter": durationText(s.Jitter),
		"from": instantText(s.From), "until": instantText(s.Until),
	})
	return declaration{kindSchedules, s.Name, spec, err}
}

// Trigger declares that an event starts a workflow: exactly one of Signal, Webhook and RunEnded.
type Trigger struct {
	Name string
	// Signal is the name of signals.
	Signal string
	// Webhook are requests to a path that the server makes up and shows.
	Webhook *WebhookSource
	// RunEnded is the name of a workflow whose runs end, in one of Statuses; in any by default.
	RunEnded string
	Statuses []RunStatus
	// Condition is what must be true of the event, in CEL; see [Where].
	Condition string
	// Start is what it starts. Texts of the input, and keys, can have values of the event, such as ${data.customer}.
	Start Planned
}

// WebhookSource says what requests start a run.
type WebhookSource struct {
	// Verify is how requests are signed, with the secret named Secret. By default the path is the only secret.
	Verify, Secret string
	// Respond is how long a sender waits for what the run responds, at most 1m. By default it does not.
	Respond time.Duration
}

func (t Trigger) declare() declaration {
	on := map[string]any{}
	if t.Signal != "" {
		on["signal"] = map[string]any{"name": t.Signal, "condition": t.Condition}
	}
	if w := t.Webhook; w != nil {
		on["webhook"] = map[string]any{
			"verify": w.Verify, "secret": w.Secret, "respond": durationText(w.Respond), "condition": t.Condition,
		}
	}
	if t.RunEnded != "" {
		on["runEnded"] = map[string]any{"workflow": t.RunEnded, "statuses": t.Statuses, "condition": t.Condition}
	}
	start, err := t.Start.spec()
	return declaration{kindTriggers, t.Name, map[string]any{"on": on, "start": start}, err}
}

// Planned is a start of a workflow that a [Schedule] or [Trigger] makes.
type Planned struct {
	body startBody
	err  error
}

// Planned returns a start with an input.
func (d *Workflow[I, O]) Planned(in I, options ...StartOption) Planned {
	return planned(d.name, in, options)
}

// PlannedFrom returns a start whose input has texts such as ${data.customer}, which a trigger replaces by values of its
// event. If it is nil, the input is the event: the data of a signal, the request to a webhook, or the end of a run.
func (d *Workflow[I, O]) PlannedFrom(template any, options ...StartOption) Planned {
	return planned(d.name, template, options)
}

func planned(workflow string, in any, options []StartOption) (p Planned) {
	p.body.Workflow = workflow
	if in != nil {
		p.body.Input, p.err = encode(in)
	}
	for _, set := range options {
		set.configureStart(&p.body)
	}
	if p.err == nil {
		p.err = p.body.err
	}
	return p
}

// spec returns the fields of the start that are set.
func (p Planned) spec() (map[string]any, error) {
	spec := map[string]any{}
	if p.err != nil {
		return spec, p.err
	}
	text, err := json.Marshal(p.body)
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if p.body.Input == nil {
		delete(spec, "input")
	}
	return spec, err
}

func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func instantText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// Declare adds limits, schedules and triggers to those that the app needs. [App.Reconcile] makes the server have them.
func (a *App) Declare(declarations ...Declaration) {
	for _, d := range declarations {
		made := d.declare()
		if made.err == nil {
			made.spec, made.err = canonical(made.kind, made.spec)
		}
		if made.err != nil {
			a.problems = append(a.problems, fmt.Errorf("%s %q: %w", made.kind, made.name, made.err))
		}
		twice := func(other declaration) bool { return other.kind == made.kind && other.name == made.name }
		if slices.ContainsFunc(a.declared, twice) {
			a.problems = append(a.problems, fmt.Errorf("%s %q is declared twice", made.kind, made.name))
		}
		a.declared = append(a.declared, made)
	}
}

// Change is what [App.Reconcile] does with something on the server.
type Change struct {
	// Kind is limits, schedules or triggers, and Name the name of one of them.
	Kind, Name string
	// Action is "create", "change" or "remove".
	Action string

	spec map[string]any
}

// String implements [fmt.Stringer].
func (c Change) String() string { return fmt.Sprintf("%s %s %s", c.Action, c.Kind, c.Name) }

// Changes returns what [App.Reconcile] would change now. It changes nothing.
func (a *App) Changes(ctx context.Context, c *Client) ([]Change, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	var changes, removals []Change
	for _, kind := range kinds {
		there := map[string]map[string]any{}
		for item, err := range pages[map[string]any](ctx, c.get, apiPath(kind), url.Values{}) {
			if err != nil {
				return nil, err
			}
			name, _ := item["name"].(string)
			there[name] = item
		}
		for _, d := range a.declared {
			if d.kind == kind {
				change, err := d.change(there[d.name])
				if err != nil {
					return nil, err
				}
				if change.Action != "" {
					changes = append(changes, change)
				}
				delete(there, d.name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(there)) {
			if strings.HasPrefix(name, a.name+".") {
				removals = append(removals, Change{Kind: kind, Name: name, Action: "remove"})
			}
		}
	}
	slices.Reverse(removals) // triggers and schedules go before the limits that they use
	return append(changes, removals...), nil
}

// Reconcile makes the server have the limits, schedules and triggers that the app has declared, and returns what it has
// changed. What has a name that begins with the app's name and a dot, such as orders.nightly, and is not declared, is
// removed; other names are never removed. What is paused stays paused. The client's key needs the role admin.
//
// Call it once for each release, when a deployment of the app is registered, not in each process: one of an older
// release would bring back what that had declared. If it fails, some changes may have been made; it can be repeated.
func (a *App) Reconcile(ctx context.Context, c *Client) ([]Change, error) {
	changes, err := a.Changes(ctx, c)
	for i, change := range changes {
		r := apiRequest{method: http.MethodPut, path: apiPath(change.Kind, change.Name), body: change.spec}
		if change.Action == "remove" {
			r.method, r.body = http.MethodDelete, nil
		}
		if err := c.do(ctx, r, nil); err != nil {
			return changes[:i], fmt.Errorf("%s: %w", change, err)
		}
	}
	return changes, err
}

// change returns what makes an item of the server what is declared; nil stands for none. Without an action, it is that.
func (d declaration) change(there map[string]any) (Change, error) {
	c := Change{d.kind, d.name, "create", d.spec}
	if there == nil {
		return c, nil
	}
	fields := map[string]any{}
	for _, name := range specFields[d.kind] {
		if value, ok := there[name]; ok {
			fields[name] = value
		}
	}
	have, err := canonical(d.kind, fields)
	if err != nil {
		return c, fmt.Errorf("read %s %s: %w", d.kind, d.name, err)
	}
	if reflect.DeepEqual(d.spec, have) {
		return Change{}, nil
	}
	c.Action, c.spec = "change", maps.Clone(d.spec)
	if there["paused"] == true { // of a limit; that of the others is no part of what is written
		c.spec["paused"] = true
	}
	return c, nil
}

// specFields are what a declaration says of each kind. The other fields of the API are its state.
var specFields = map[string][]string{
	kindLimits: {"perKey", "total", "rate", "fair", "onFull"},
	kindSchedules: {
		"cron", "every", "timeZone", "from", "until", "workflow", "deployment", "input", "attributes", "timeout", "overlap",
		"catchUp", "catchUpWindow", "jitter",
	},
	kindTriggers: {"on", "start"},
}

// fieldDefaults are what the API shows of fields that were left out, by the object that they are in.
var fieldDefaults = map[string]map[string]any{
	"limits":      {"onFull": "wait"},
	"limits.rate": {"burst": 1.0},
	"schedules":   {"overlap": "skip", "catchUp": "latest", "catchUpWindow": "24h0m0s"},

	"triggers.on.runEnded":    {"statuses": []any{"completed", "failed", "cancelled"}},
	"triggers.start.debounce": {"max": "168h0m0s", "keep": "last"},
}

// canonical returns fields as JSON has them, so that two that mean the same are equal: with the defaults, without what
// is empty or only in answers, and with durations and times written in one way.
func canonical(object string, fields map[string]any) (map[string]any, error) {
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode it: %w", err)
	}
	var plain map[string]any
	if err := json.Unmarshal(text, &plain); err != nil {
		return nil, fmt.Errorf("decode it: %w", err)
	}
	return canonicalObject(object, plain), nil
}

func canonicalObject(object string, fields map[string]any) map[string]any {
	delete(fields, "sustained") // a result of the rate
	for name, value := range fields {
		inner, isObject := value.(map[string]any)
		switch {
		case name == "input" || name == "attributes": // what is in them is the user's
		case isObject:
			fields[name] = canonicalObject(object+"."+name, inner)
		case value == nil || value == "" || value == 0.0 || value == false || reflect.DeepEqual(value, []any{}):
			delete(fields, name)
		default:
			fields[name] = canonicalText(name, value)
		}
	}
	for name, value := range fieldDefaults[object] {
		if _, set := fields[name]; !set {
			fields[name] = value
		}
	}
	return fields
}

var (
	durationFields = []string{
		"every", "timeout", "jitter", "catchUpWindow", "per", "delay", "quiet", "max", "wait", "priority", "respond",
	}
	instantFields = []string{"from", "until"}
)

// canonicalText returns the text of a duration or a time as there is one way to write it.
func canonicalText(field string, value any) any {
	text, _ := value.(string)
	if d, err := time.ParseDuration(text); err == nil && slices.Contains(durationFields, field) {
		return durationText(d)
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil && slices.Contains(instantFields, field) {
		return instantText(t)
	}
	return value
}
