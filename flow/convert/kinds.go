package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// The settings of the kinds of steps, which are their config. An agent loop may have them in loop instead.
type (
	childConfig struct {
		Workflow string `json:"workflow"`
		Detach   bool   `json:"detach"`
	}
	sleepConfig struct {
		Duration       delay           `json:"duration"`
		Cron           json.RawMessage `json:"cron"`
		UntilInputPath string          `json:"until_input_path"`
	}
	eventConfig struct {
		Event   string          `json:"event"`
		Timeout delay           `json:"timeout"`
		Match   json.RawMessage `json:"match"`
	}
	mapConfig struct {
		MaxItems int `json:"max_items"`
	}
	loopConfig struct {
		MaxIterations int             `json:"max_iterations"`
		LoopDelay     delay           `json:"loop_delay"`
		MaxDuration   json.RawMessage `json:"max_duration"`
		BudgetWarnAt  json.RawMessage `json:"budget_warn_at"`
		BudgetForceAt json.RawMessage `json:"budget_force_at"`
	}
	plannerConfig struct {
		MaxSteps     int      `json:"max_steps"`
		MaxDepth     int      `json:"max_depth"`
		AllowedTasks []string `json:"allowed_tasks"`
	}
	approvalConfig struct {
		Timeout     delay             `json:"timeout"`
		Subject     string            `json:"subject"`
		Description string            `json:"description"`
		Metadata    map[string]string `json:"metadata"` // is for people, and left out
	}
	respondConfig struct {
		Status      int             `json:"status"`
		ContentType string          `json:"content_type"`
		Headers     json.RawMessage `json:"headers"`
		BodyFrom    json.RawMessage `json:"body_from"`
	}
)

// configOf decodes the settings of a step. What its kind does not have is refused.
func configOf[T any](c *dagNatsConversion, where string, text json.RawMessage) (config T) {
	if len(text) == 0 {
		return config
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&config); err != nil {
		c.refuse("%s: its config cannot be read: %v", where, err)
	}
	return config
}

// kind writes what a step does.
func (c *dagNatsConversion) kind(where string, s stepDef) {
	switch s.Type {
	case "", "normal", "agent":
		c.call(where, s)
	case "sub_workflow":
		config := configOf[childConfig](c, where, s.Config)
		kind := "flow"
		if config.Detach {
			kind = "start"
		}
		c.line(4, kind, config.Workflow)
		c.input(s)
	case "sleep":
		c.sleep(where, configOf[sleepConfig](c, where, s.Config))
	case "wait_for_event":
		c.event(where, configOf[eventConfig](c, where, s.Config))
	case "map":
		c.mapping(where, s)
	case "agent_loop":
		c.loop(where, s)
	case "planner":
		c.plan(where, s)
	case "approval":
		c.approval(s, configOf[approvalConfig](c, where, s.Config))
	case "respond":
		c.respond(where, s)
	default:
		c.refuse("%s: there is no conversion of type %s: write the step by hand", where, s.Type)
	}
}

// call writes the call of a step's task.
func (c *dagNatsConversion) call(where string, s stepDef) {
	c.line(4, "call", s.Task)
	c.input(s)
	settings := c.attempts(where, s)
	for _, name := range []string{"attemptTimeout", "retry"} {
		if value, ok := settings[name]; ok {
			c.line(4, name, value)
		}
	}
}

// attempts returns the settings of the attempts of a call.
func (c *dagNatsConversion) attempts(where string, s stepDef) map[string]any {
	settings := map[string]any{}
	if s.Timeout > 0 {
		settings["attemptTimeout"] = time.Duration(s.Timeout).String()
	}
	switch {
	case s.Retry != nil:
		settings["retry"] = c.retry(where, s.Retry)
	case s.Retries > 0 && c.DefaultRetry == nil: // a default comes first there
		settings["retry"] = map[string]any{"maxAttempts": s.Retries + 1, "backoff": "5s", "factor": 1}
	}
	return settings
}

// body returns the call that a map or a loop does, which is undone where it is done.
func (c *dagNatsConversion) body(where string, s stepDef) map[string]any {
	body := c.attempts(where, s)
	body["call"] = s.Task
	if undo := c.undo(where, s); undo != nil {
		body["undo"] = undo
	}
	return body
}

// sleep writes a wait for a time, or until the one that the run's input has.
func (c *dagNatsConversion) sleep(where string, config sleepConfig) {
	c.refuseFields(where, map[string]unwanted{
		"cron": {config.Cron, "start the rest of the workflow by a schedule, or wait for a time or until one"},
	})
	if config.UntilInputPath == "" {
		c.line(4, "wait", time.Duration(config.Duration).String())
		return
	}
	until := c.given()
	for name := range strings.SplitSeq(config.UntilInputPath, ".") {
		until += "[" + encoded(name) + "]"
	}
	c.line(4, "let", map[string]string{"until": "${" + until + "}"})
	c.comment("until is a time in RFC 3339, or a number of milliseconds from now on.")
	c.line(4, "wait", map[string]string{
		"until": "${type(until) == string ? timestamp(until) : now + duration(string(int(until)) + 'ms')}",
	})
}

func (c *dagNatsConversion) event(where string, config eventConfig) {
	if isSet(config.Match) {
		c.refuse("%s: write match as the condition of the signal, in CEL, such as data.id == input.id", where)
	}
	signal := map[string]any{"name": config.Event}
	if config.Timeout > 0 {
		signal["within"] = time.Duration(config.Timeout).String()
		c.comment("A signal that does not come in time is a failure with the code wait_timeout: catch it to go on.")
	}
	c.line(4, "signal", signal)
}

// mapping writes a map of the one list that the step gets. A longer one than it may have is none, so that the map
// fails.
func (c *dagNatsConversion) mapping(where string, s stepDef) {
	list := c.given()
	switch len(s.DependsOn) {
	case 0:
	case 1:
		list = outputOf(s.DependsOn[0])
	default:
		c.refuse("%s: a map of several steps has no meaning here: let it need the one that returns the list", where)
	}
	if most := configOf[mapConfig](c, where, s.Config).MaxItems; most > 0 {
		list = fmt.Sprintf("size(%s) <= %d ? %s : dyn('more than %d items')", list, most, list, most)
	}
	c.line(4, "map", list)
	c.line(4, "do", c.body(where, s))
}

// loop writes a loop that ends when its function says so. What the function keeps as a checkpoint there is what it has
// returned before.
func (c *dagNatsConversion) loop(where string, s stepDef) {
	text := s.Loop
	if !isSet(text) {
		text = s.Config
	}
	config := configOf[loopConfig](c, where, text)
	c.refuseFields(where, map[string]unwanted{
		"max_duration":    {config.MaxDuration, "limit the iterations, and the timeout of each"},
		"budget_warn_at":  {config.BudgetWarnAt, "let the function count what it spends"},
		"budget_force_at": {config.BudgetForceAt, "let the function count what it spends"},
	})
	body := c.body(where, s)
	body["input"] = map[string]any{"input": c.inputOf(s), "last": "${iteration.last}"}
	loop := map[string]any{"do": body, "until": "iteration.last.done", "max": config.MaxIterations}
	if config.LoopDelay > 0 {
		loop["delay"] = time.Duration(config.LoopDelay).String()
	}
	c.comment("%s returns an object: done ends the loop, and the next call gets the object as last.", s.Task)
	c.line(4, "loop", loop)
}

func (c *dagNatsConversion) plan(where string, s stepDef) {
	config := configOf[plannerConfig](c, where, s.Config)
	if len(config.AllowedTasks) == 0 {
		c.refuse("%s: a plan without allowed_tasks has no meaning here: name the functions that it may call", where)
	}
	if config.MaxDepth > 0 && config.MaxDepth < config.MaxSteps {
		c.refuse("%s: max_depth has no meaning here: max_steps limits a plan", where)
	}
	c.comment("%s returns steps in the language of flows.", s.Task)
	c.line(4, "plan", s.Task)
	allow := map[string]any{"calls": config.AllowedTasks}
	if config.MaxSteps > 0 {
		allow["maxSteps"] = config.MaxSteps
	}
	c.line(4, "allow", allow)
	c.line(4, "input", c.inputOf(s))
	settings := c.attempts(where, s)
	for _, name := range []string{"attemptTimeout", "retry"} {
		if value, ok := settings[name]; ok {
			c.line(4, name, value)
		}
	}
}

// approval writes an approval, which is rejected if nobody decides in time.
func (c *dagNatsConversion) approval(s stepDef, config approvalConfig) {
	approval := map[string]any{"title": config.Description}
	if config.Description == "" {
		approval["title"] = s.ID
	}
	if config.Timeout > 0 {
		approval["deadline"], approval["onTimeout"] = time.Duration(config.Timeout).String(), "reject"
	}
	if config.Subject != "" {
		c.comment("Nothing is published at the subject %s: stepwell hooks list has what waits.", config.Subject)
	}
	c.line(4, "approval", approval)
}

// respond writes the response to the request for which the flow waits.
func (c *dagNatsConversion) respond(where string, s stepDef) {
	config := configOf[respondConfig](c, where, s.Config)
	c.refuseFields(where, map[string]unwanted{
		"headers":   {config.Headers, "a response is JSON without headers of its own"},
		"body_from": {config.BodyFrom, "write the body by hand"},
	})
	if config.ContentType != "" && config.ContentType != "application/json" {
		c.refuse("%s: content_type %s has no meaning here: a response is JSON", where, config.ContentType)
	}
	response := map[string]any{"to": c.request, "body": c.inputOf(s)}
	if config.Status > 0 {
		response["status"] = config.Status
	}
	c.line(4, "respond", response)
}

// longestResponse is how long the sender of a request waits at most, and usualResponse how long it does by default.
const (
	longestResponse = time.Minute
	usualResponse   = 30 * time.Second
)

// awaitRequest begins a flow that responds with the hook that receives the request.
func (c *dagNatsConversion) awaitRequest() {
	if c.request == "" {
		return
	}
	if isSet(c.InputSchema) {
		c.refuse("the workflow: input_schema has no meaning with respond here: a request is not checked by a schema")
	}
	within := usualResponse
	if list := c.triggers(); len(list) == 1 && list[0].HTTP != nil && list[0].HTTP.TimeoutMS > 0 {
		within = min(longestResponse, time.Duration(list[0].HTTP.TimeoutMS)*time.Millisecond)
	}
	fmt.Fprintf(&c.out,
		"  # A run waits for its request: start it, and send the request to the URL of this hook.\n  %s:\n",
		quoted(c.request))
	c.line(4, "hook", map[string]any{"webhook": map[string]any{"respond": within.String()}})
}

// comment writes what an author should know of the fields that follow.
func (c *dagNatsConversion) comment(format string, args ...any) {
	fmt.Fprintf(&c.out, "    # %s\n", oneLine(fmt.Sprintf(format, args...)))
}
