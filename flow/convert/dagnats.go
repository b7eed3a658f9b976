package convert

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/flow"
)

// dagNats converts workflow definitions of DagNats (https://github.com/danmestas/dagnats), as its JSON Schema and its
// examples have them.
type dagNats struct{}

// definition is a workflow definition. What is raw is not converted, and its presence is reported.
type definition struct {
	Name         string          `json:"name"`
	Version      string          `json:"version"`
	Schema       string          `json:"$schema"`
	Steps        []stepDef       `json:"steps"`
	DefaultRetry *retryPolicy    `json:"default_retry"`
	InputSchema  json.RawMessage `json:"input_schema"`

	Timeout        delay           `json:"timeout"`
	OutputSchema   json.RawMessage `json:"output_schema"`
	Triggers       json.RawMessage `json:"triggers"`
	Concurrency    json.RawMessage `json:"concurrency"`
	IdempotencyKey json.RawMessage `json:"idempotency_key"`
	Sticky         json.RawMessage `json:"sticky"`
	Priority       json.RawMessage `json:"priority"`
	CancelOn       json.RawMessage `json:"cancel_on"`
	Singleton      json.RawMessage `json:"singleton"`
	AuxSteps       json.RawMessage `json:"aux_steps"`
}

// stepDef is a step of a definition.
type stepDef struct {
	ID         string            `json:"id"`
	Task       string            `json:"task"`
	Type       string            `json:"type"`
	DependsOn  []string          `json:"depends_on"`
	Retries    int               `json:"retries"`
	Retry      *retryPolicy      `json:"retry"`
	Timeout    delay             `json:"timeout"`
	SkipIf     *parentCond       `json:"skip_if"`
	OnFailure  string            `json:"on_failure"`
	Compensate string            `json:"compensate"`
	Metadata   map[string]string `json:"metadata"` // is for people, and left out
	Config     json.RawMessage   `json:"config"`

	Loop                 json.RawMessage `json:"loop"`
	WorkerGroup          json.RawMessage `json:"worker_group"`
	RateLimit            json.RawMessage `json:"rate_limit"`
	KeyedRateLimit       json.RawMessage `json:"keyed_rate_limit"`
	MaxTaskConcurrency   json.RawMessage `json:"max_task_concurrency"`
	Singleton            json.RawMessage `json:"singleton"`
	RequiredCapabilities json.RawMessage `json:"required_capabilities"`

	// handles is the step after whose failure this one begins; empty if there is none.
	handles string
}

type parentCond struct {
	StepID string          `json:"step_id"`
	Field  string          `json:"field"`
	Op     string          `json:"op"`
	Value  json.RawMessage `json:"value"`
}

type retryPolicy struct {
	MaxAttempts  int     `json:"max_attempts"`
	Strategy     string  `json:"strategy"`
	InitialDelay delay   `json:"initial_delay"`
	MaxDelay     delay   `json:"max_delay"`
	Multiplier   float64 `json:"multiplier"`
}

// delay is a duration: a text such as "2h", or nanoseconds.
type delay time.Duration

// UnmarshalJSON implements [json.Unmarshaler].
func (d *delay) UnmarshalJSON(text []byte) error {
	if len(text) == 0 || text[0] != '"' {
		return json.Unmarshal(text, (*time.Duration)(d))
	}
	parsed, err := time.ParseDuration(strings.Trim(string(text), `"`))
	*d = delay(parsed)
	return err
}

// Convert implements [Source].
func (dagNats) Convert(document []byte, deployment string) ([]byte, error) {
	text, err := flow.JSON(document)
	if err != nil {
		return nil, err
	}
	var def definition
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&def); err != nil {
		return nil, fmt.Errorf("it is not a workflow definition of DagNats: %w", err)
	}
	c := dagNatsConversion{definition: def, steps: map[string]stepDef{}, handlers: map[string]string{}}
	return c.convert(deployment)
}

type dagNatsConversion struct {
	definition

	steps map[string]stepDef
	// handlers are the steps that begin after failures, by the steps that fail.
	handlers map[string]string
	// request is the ID of the hook for whose request a flow waits that responds; empty for others.
	request string
	refused Unsupported
	out     bytes.Buffer
}

func (c *dagNatsConversion) convert(deployment string) ([]byte, error) {
	undoing := c.index()
	c.commands()
	c.refuseFields("the workflow", map[string]unwanted{
		"output_schema":   {c.OutputSchema, "a flow has no schema of its output"},
		"concurrency":     {c.Concurrency, "use limits: stepwell limits, stepwell policies"},
		"idempotency_key": {c.IdempotencyKey, "give it when a run is started"},
		"sticky":          {c.Sticky, "there are no workers that keep state"},
		"priority":        {c.Priority, "give it when a run is started"},
		"cancel_on":       {c.CancelOn, "have a trigger or a client cancel the run"},
		"singleton":       {c.Singleton, "start runs with a key"},
	})
	c.line(0, "flow", c.Name)
	c.line(0, "deployment", deployment)
	if len(c.InputSchema) > 0 {
		c.line(0, "input", c.InputSchema)
	}
	if c.Timeout > 0 {
		c.line(0, "timeout", time.Duration(c.Timeout).String())
	}
	retry := map[string]any{"maxAttempts": 1}
	if c.DefaultRetry != nil {
		retry = c.retry("the workflow", c.DefaultRetry)
	}
	c.line(0, "defaults", map[string]any{"retry": retry})
	c.out.WriteString("steps:\n")
	c.awaitRequest()
	for _, s := range c.Steps {
		if !undoing[s.ID] {
			c.step(s)
		}
	}
	if len(c.refused) > 0 {
		return nil, c.refused
	}
	return c.out.Bytes(), nil
}

// index notes the steps by their IDs, and returns those that only undo others.
func (c *dagNatsConversion) index() (undoing map[string]bool) {
	undoing = map[string]bool{}
	responds := false
	for _, s := range c.Steps {
		c.steps[s.ID] = s
		undoing[s.Compensate] = s.Compensate != ""
		responds = responds || s.Type == "respond"
	}
	if responds {
		c.request = "request"
		for c.steps[c.request].ID != "" {
			c.request += "_"
		}
	}
	c.handle()
	return undoing
}

// handle makes a handler of its own for each failure. Of one that handles several, the others are copies.
func (c *dagNatsConversion) handle() {
	var all []stepDef
	for _, s := range c.Steps {
		var failing []string
		for _, other := range c.Steps {
			if other.OnFailure == s.ID {
				failing = append(failing, other.ID)
			}
		}
		needed := slices.ContainsFunc(c.Steps, func(by stepDef) bool { return slices.Contains(by.DependsOn, s.ID) })
		if len(failing) > 1 && (needed || s.OnFailure != "") {
			c.refuse("step %s: it handles failures of several steps, so nothing can follow from it: "+
				"write a handler for each of %s", s.ID, strings.Join(failing, ", "))
		}
		for i, id := range failing {
			own := s
			if own.handles = id; i > 0 {
				own.ID = s.ID + "_" + id
			}
			c.handlers[id] = own.ID
			all = append(all, own)
		}
		if len(failing) == 0 {
			all = append(all, s)
		}
	}
	c.Steps = all
}

// unwanted is a field that has no meaning in a flow, and what to do instead.
type unwanted struct {
	value   json.RawMessage
	instead string
}

func (c *dagNatsConversion) refuse(format string, args ...any) {
	c.refused = append(c.refused, fmt.Sprintf(format, args...))
}

func (c *dagNatsConversion) refuseFields(where string, fields map[string]unwanted) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if field := fields[name]; isSet(field.value) {
			c.refuse("%s: %s has no meaning here: %s", where, name, field.instead)
		}
	}
}

func isSet(value json.RawMessage) bool { return len(value) > 0 && string(value) != "null" }

// oneLine returns a text for a comment.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// line writes a field of a document. Its value is JSON, which is YAML, too.
func (c *dagNatsConversion) line(indent int, name string, value any) {
	fmt.Fprintf(&c.out, "%*s%s: %s\n", indent, "", quoted(name), encoded(value))
}

func encoded(value any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		panic(err) // values are texts, numbers, and what was decoded from JSON
	}
	return strings.TrimSpace(b.String())
}

// quoted returns the name of a field as YAML has it.
func quoted(name string) string {
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return encoded(name)
		}
	}
	return name
}

func (c *dagNatsConversion) step(s stepDef) {
	where := "step " + s.ID
	c.refuseFields(where, map[string]unwanted{
		"worker_group":          {s.WorkerGroup, "name the deployment that has the function"},
		"rate_limit":            {s.RateLimit, "use limits: stepwell limits"},
		"keyed_rate_limit":      {s.KeyedRateLimit, "use limits: stepwell limits"},
		"max_task_concurrency":  {s.MaxTaskConcurrency, "use limits: stepwell limits"},
		"singleton":             {s.Singleton, "use limits: stepwell limits"},
		"required_capabilities": {s.RequiredCapabilities, "functions have the rights that their deployment gives them"},
	})
	fmt.Fprintf(&c.out, "  %s:\n", quoted(s.ID))
	switch {
	case s.handles != "":
		for _, id := range s.DependsOn {
			if !c.precedes(id, s.handles) {
				c.refuse("%s: depends_on names %s, which has no meaning here: the step begins when %s fails", where, id, s.handles)
			}
		}
	case len(s.DependsOn) > 0:
		c.line(4, "needs", s.DependsOn)
	case c.request != "":
		c.line(4, "needs", []string{c.request})
	}
	if when := c.when(where, s); when != "" {
		c.line(4, "when", when)
	}
	c.kind(where, s)
	if s.OnFailure != "" {
		c.line(4, "catch", []any{map[string]any{"to": cmp.Or(c.handlers[s.ID], s.OnFailure)}})
	}
	switch s.Type {
	case "map", "agent_loop": // the body has it
	case "", "normal", "agent", "sub_workflow":
		if undo := c.undo(where, s); undo != nil {
			c.line(4, "undo", undo)
		}
	default:
		if s.Compensate != "" {
			c.refuse("%s: compensate has no meaning here for a step of type %s: there is nothing to undo by a call",
				where, s.Type)
		}
	}
}

// undo returns what undoes a step; nil if nothing does.
func (c *dagNatsConversion) undo(where string, s stepDef) map[string]any {
	if s.Compensate == "" {
		return nil
	}
	by, ok := c.steps[s.Compensate]
	if !ok || !slices.Contains([]string{"", "normal", "agent"}, by.Type) {
		c.refuse("%s: compensate names %q, which is no step with a task", where, s.Compensate)
	}
	undo := c.attempts("step "+s.Compensate, by)
	undo["call"] = by.Task
	undo["input"] = map[string]string{"original_step": s.ID, "original_output": "${undo.output}"}
	return undo
}

// precedes reports whether a step has ended whenever another one begins.
func (c *dagNatsConversion) precedes(id, later string) bool {
	seen := map[string]bool{}
	var visit func(string) bool
	visit = func(later string) bool {
		if seen[later] {
			return false
		}
		seen[later] = true
		needs := c.steps[later].DependsOn
		return slices.Contains(needs, id) || slices.ContainsFunc(needs, visit)
	}
	return visit(later)
}

// input writes what a step gets, unless it is the run's input.
func (c *dagNatsConversion) input(s stepDef) {
	if len(s.DependsOn) > 0 || c.request != "" || s.handles != "" {
		c.line(4, "input", c.inputOf(s))
	}
}

// inputOf returns what a step gets: the failure that it is for, the run's input, the output of the step that it needs,
// or those of several by ID.
func (c *dagNatsConversion) inputOf(s stepDef) any {
	if s.handles != "" {
		return map[string]string{"failed_step": s.handles, "error": "${error.message}"}
	}
	switch len(s.DependsOn) {
	case 0:
		return "${" + c.given() + "}"
	case 1:
		return "${" + outputOf(s.DependsOn[0]) + "}"
	default:
		outputs := map[string]string{}
		for _, id := range s.DependsOn {
			outputs[id] = "${" + outputOf(id) + "}"
		}
		return outputs
	}
}

// given is an expression for the input of a run, or for the body of the request for which it waits.
func (c *dagNatsConversion) given() string {
	if c.request != "" {
		return outputOf(c.request) + ".body"
	}
	return "input"
}

func outputOf(id string) string { return "steps[" + encoded(id) + "].output" }

// when returns the condition under which a step is not skipped; empty if it never is. A step does not run after the
// failure of one that it needs, although something has been done about that failure.
func (c *dagNatsConversion) when(where string, s stepDef) string {
	var all []string
	for _, id := range s.DependsOn {
		if c.steps[id].OnFailure != "" {
			all = append(all, "!steps["+encoded(id)+"].failed")
		}
	}
	if s.SkipIf != nil {
		all = append(all, c.unless(where, s.SkipIf))
	}
	return strings.Join(all, " && ")
}

// unless returns the opposite of a condition. What cannot be compared does not meet the condition.
func (c *dagNatsConversion) unless(where string, skip *parentCond) string {
	if !slices.Contains([]string{"==", "!=", "<", ">", "<=", ">="}, skip.Op) {
		c.refuse("%s: skip_if has the operator %q, which is unknown", where, skip.Op)
	}
	output, field := outputOf(skip.StepID), encoded(skip.Field)
	value := output + "[" + field + "]"
	fits := "type(" + value + ") in [int, uint, double]"
	switch text := string(skip.Value); {
	case strings.HasPrefix(text, `"`):
		fits = "type(" + value + ") == string"
	case text == "true" || text == "false":
		fits = "type(" + value + ") == bool"
		if skip.Op != "==" && skip.Op != "!=" {
			c.refuse("%s: skip_if compares a boolean by %s: choose == or !=", where, skip.Op)
		}
	case strings.Trim(text, "-.eE+0123456789") != "" || text == "":
		c.refuse("%s: skip_if compares with %s, which is no text, number or boolean", where, text)
	}
	return fmt.Sprintf("!(type(%s) == map && %s in %s && %s && %s %s %s)",
		output, field, output, fits, value, skip.Op, skip.Value)
}

// retry returns a policy. Attempts count the first one here, and only those after it there.
func (c *dagNatsConversion) retry(where string, r *retryPolicy) map[string]any {
	policy := map[string]any{"maxAttempts": r.MaxAttempts + 1}
	if r.InitialDelay > 0 {
		policy["backoff"] = time.Duration(r.InitialDelay).String()
	}
	if r.MaxDelay > 0 {
		policy["maxBackoff"] = time.Duration(r.MaxDelay).String()
	}
	switch {
	case r.Strategy == "fixed":
		policy["factor"] = 1
		if _, ok := policy["maxBackoff"]; !ok && r.InitialDelay > 0 {
			policy["maxBackoff"] = policy["backoff"]
		}
	case r.Strategy == "exponential" && r.Multiplier > 0:
		policy["factor"] = r.Multiplier
	case r.Strategy == "exponential":
		policy["factor"] = 2
	default:
		c.refuse("%s: the retry strategy %s has no meaning here: choose fixed or exponential", where, r.Strategy)
	}
	return policy
}
