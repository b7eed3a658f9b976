package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/queue/flow"
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

	Timeout        json.RawMessage `json:"timeout"`
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
	Config     struct {
		Workflow string `json:"workflow"`
		Duration delay  `json:"duration"`
		Event    string `json:"event"`
		Timeout  delay  `json:"timeout"`

		Match  json.RawMessage `json:"match"`
		Detach bool            `json:"detach"`
		rest
	} `json:"config"`

	Loop                 json.RawMessage `json:"loop"`
	WorkerGroup          json.RawMessage `json:"worker_group"`
	RateLimit            json.RawMessage `json:"rate_limit"`
	KeyedRateLimit       json.RawMessage `json:"keyed_rate_limit"`
	MaxTaskConcurrency   json.RawMessage `json:"max_task_concurrency"`
	Singleton            json.RawMessage `json:"singleton"`
	RequiredCapabilities json.RawMessage `json:"required_capabilities"`
}

// rest are the settings of kinds of steps that are refused as a whole.
type rest struct {
	MaxIterations json.RawMessage `json:"max_iterations"`
	MaxDuration   json.RawMessage `json:"max_duration"`
	LoopDelay     json.RawMessage `json:"loop_delay"`
	BudgetWarnAt  json.RawMessage `json:"budget_warn_at"`
	BudgetForceAt json.RawMessage `json:"budget_force_at"`
	MaxItems      json.RawMessage `json:"max_items"`
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
	c := dagNatsConversion{definition: def, steps: map[string]stepDef{}}
	return c.convert(deployment)
}

type dagNatsConversion struct {
	definition

	steps   map[string]stepDef
	refused Unsupported
	out     bytes.Buffer
}

func (c *dagNatsConversion) convert(deployment string) ([]byte, error) {
	c.refuseFields("the workflow", map[string]unwanted{
		"timeout":         {c.Timeout, "give it when a run is started"},
		"output_schema":   {c.OutputSchema, "a flow has no schema of its output"},
		"triggers":        {c.Triggers, "put them with stepwell schedules and stepwell triggers"},
		"concurrency":     {c.Concurrency, "use limits: stepwell limits, stepwell policies"},
		"idempotency_key": {c.IdempotencyKey, "give it when a run is started"},
		"sticky":          {c.Sticky, "there are no workers that keep state"},
		"priority":        {c.Priority, "give it when a run is started"},
		"cancel_on":       {c.CancelOn, "have a trigger or a client cancel the run"},
		"singleton":       {c.Singleton, "start runs with a key"},
	})
	undoing := map[string]bool{}
	for _, s := range c.Steps {
		c.steps[s.ID] = s
		undoing[s.Compensate] = s.Compensate != ""
	}
	c.line(0, "flow", c.Name)
	c.line(0, "deployment", deployment)
	if len(c.InputSchema) > 0 {
		c.line(0, "input", c.InputSchema)
	}
	if c.DefaultRetry != nil {
		c.line(0, "defaults", map[string]any{"retry": c.retry("the workflow", c.DefaultRetry)})
	}
	c.out.WriteString("steps:\n")
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
		if field := fields[name]; len(field.value) > 0 && string(field.value) != "null" {
			c.refuse("%s: %s has no meaning here: %s", where, name, field.instead)
		}
	}
}

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
	if len(s.DependsOn) > 0 {
		c.line(4, "needs", s.DependsOn)
	}
	if s.SkipIf != nil {
		c.line(4, "when", c.when(where, s.SkipIf))
	}
	c.kind(where, s)
	if s.OnFailure != "" {
		c.line(4, "catch", []any{map[string]any{"to": s.OnFailure}})
	}
	if s.Compensate != "" {
		if by, ok := c.steps[s.Compensate]; ok && (by.Type == "" || by.Type == "normal") {
			c.line(4, "undo", map[string]any{"call": by.Task})
		} else {
			c.refuse("%s: compensate names %q, which is no step with a task", where, s.Compensate)
		}
	}
}

// kind writes what a step does.
func (c *dagNatsConversion) kind(where string, s stepDef) {
	switch s.Type {
	case "", "normal":
		c.line(4, "call", s.Task)
		c.input(s)
		if s.Timeout > 0 {
			c.line(4, "timeout", time.Duration(s.Timeout).String())
		}
		switch {
		case s.Retry != nil:
			c.line(4, "retry", c.retry(where, s.Retry))
		case s.Retries > 0:
			c.line(4, "retry", map[string]any{"maxAttempts": s.Retries + 1})
		}
	case "sub_workflow":
		if s.Config.Detach {
			c.refuse("%s: detach has no meaning here: a flow waits for its children", where)
		}
		c.line(4, "flow", s.Config.Workflow)
		c.input(s)
	case "sleep":
		c.line(4, "wait", time.Duration(s.Config.Duration).String())
	case "wait_for_event":
		if len(s.Config.Match) > 0 && string(s.Config.Match) != "null" {
			c.refuse("%s: match has no meaning here: the condition of a signal, in CEL, cannot read values of the run", where)
		}
		signal := map[string]any{"name": s.Config.Event}
		if s.Config.Timeout > 0 {
			signal["within"] = time.Duration(s.Config.Timeout).String()
		}
		c.line(4, "signal", signal)
	default:
		c.refuse("%s: there is no conversion of type %s: write the step by hand", where, s.Type)
	}
}

// input writes what a step gets: the run's input, the output of the step that it needs, or those of several by ID.
func (c *dagNatsConversion) input(s stepDef) {
	switch len(s.DependsOn) {
	case 0: // as here
	case 1:
		c.line(4, "input", "${"+outputOf(s.DependsOn[0])+"}")
	default:
		outputs := map[string]string{}
		for _, id := range s.DependsOn {
			outputs[id] = "${" + outputOf(id) + "}"
		}
		c.line(4, "input", outputs)
	}
}

func outputOf(id string) string { return "steps[" + encoded(id) + "].output" }

// when returns the condition under which a step is not skipped.
func (c *dagNatsConversion) when(where string, skip *parentCond) string {
	if !slices.Contains([]string{"==", "!=", "<", ">", "<=", ">="}, skip.Op) {
		c.refuse("%s: skip_if has the operator %q, which is unknown", where, skip.Op)
	}
	output, field := outputOf(skip.StepID), encoded(skip.Field)
	return fmt.Sprintf("!(%s in %s && %s[%s] %s %s)", field, output, output, field, skip.Op, skip.Value)
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
	case r.Strategy == "exponential" && r.Multiplier > 0:
		policy["factor"] = r.Multiplier
	case r.Strategy == "exponential":
		policy["factor"] = 2
	default:
		c.refuse("%s: the retry strategy %q is not known: choose fixed or exponential", where, r.Strategy)
	}
	return policy
}
