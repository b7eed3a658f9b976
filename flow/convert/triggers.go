package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// triggerDef is a trigger of a workflow, which starts its runs.
type triggerDef struct {
	ID         string `json:"id"`
	WorkflowID string `json:"workflow_id"`
	Enabled    *bool  `json:"enabled"`
	Source     string `json:"source"`
	Cron       *struct {
		Expression string `json:"expression"`
		Timezone   string `json:"timezone"`
		Backfill   bool   `json:"backfill"`
	} `json:"cron"`
	Subject *struct {
		Subject string `json:"subject"`
	} `json:"subject"`
	Webhook *struct {
		Path   string          `json:"path"`
		Secret json.RawMessage `json:"secret"`
	} `json:"webhook"`
	HTTP *struct {
		Path              string          `json:"path"`
		Method            string          `json:"method"`
		TimeoutMS         int64           `json:"timeout_ms"`
		MaxBodyBytes      int64           `json:"max_body_bytes"`
		Secret            json.RawMessage `json:"secret"`
		IdempotencyHeader json.RawMessage `json:"idempotency_header"`
	} `json:"http"`
	External json.RawMessage `json:"external"`
	Debounce json.RawMessage `json:"debounce"`
}

// triggers returns the triggers of the workflow; nil if they cannot be read.
func (c *dagNatsConversion) triggers() (list []triggerDef) {
	d := json.NewDecoder(bytes.NewReader(c.Triggers))
	d.DisallowUnknownFields()
	if d.Decode(&list) != nil {
		return nil
	}
	return list
}

// commands writes the commands that make the triggers, as a comment: a document has none. An HTTP trigger to which the
// flow responds has the flow's own webhook in its place.
func (c *dagNatsConversion) commands() {
	list := c.triggers()
	if isSet(c.Triggers) && list == nil {
		c.refuse("the workflow: its triggers cannot be read: leave them out")
	}
	for _, t := range list {
		where := "trigger " + t.ID
		c.refuseFields(where, map[string]unwanted{
			"external": {t.External, "send signals from outside, and put the trigger with stepwell triggers"},
			"debounce": {t.Debounce, "put the trigger with stepwell triggers put --debounce"},
		})
		if t.HTTP == nil || c.request == "" {
			c.trigger(where, t)
		}
	}
}

// trigger writes the command that makes a trigger.
func (c *dagNatsConversion) trigger(where string, t triggerDef) {
	switch {
	case t.Cron != nil:
		zone := ""
		if t.Cron.Timezone != "" {
			zone = " --time-zone " + inShell(t.Cron.Timezone)
		}
		c.command(t, "schedules put %s %s --cron %s%s", inShell(t.ID), inShell(c.Name), inShell(t.Cron.Expression), zone)
	case t.Subject != nil && strings.ContainsAny(t.Subject.Subject, "*>"):
		c.refuse("%s: the subject %s has no meaning here: name each signal", where, t.Subject.Subject)
	case t.Subject != nil:
		c.command(t, "triggers put %s %s --signal %s", inShell(t.ID), inShell(c.Name), inShell(t.Subject.Subject))
	case t.Webhook != nil && isSet(t.Webhook.Secret) || t.HTTP != nil && isSet(t.HTTP.Secret):
		c.refuse("%s: secret has no meaning here: put it with stepwell secrets, and the trigger with --verify", where)
	case t.Webhook != nil || t.HTTP != nil:
		c.command(t, "triggers put %s %s --webhook", inShell(t.ID), inShell(c.Name))
	}
}

// command writes a command for the author to execute.
func (c *dagNatsConversion) command(t triggerDef, format string, args ...any) {
	text := "stepwell " + fmt.Sprintf(format, args...)
	if t.Enabled != nil && !*t.Enabled {
		text += "   (it was not enabled)"
	}
	fmt.Fprintf(&c.out, "# Once the flow is put: %s\n", oneLine(text))
}

var plainInShell = regexp.MustCompile(`^[A-Za-z0-9_./:@-]+$`)

// inShell returns a text as a word of a shell.
func inShell(text string) string {
	if plainInShell.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
