package redact

import (
	"cmp"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

const (
	run = `{"id": "wrun_1", "workflow": "order", "key": "ann-7", "attributes": {"customer": "ann"}, "input": "ann",
		"createdAt": "2026-01-01T00:00:00Z"}`
	log = `[
		{"runId": "wrun_1", "seq": 1, "type": "run_created", "createdAt": "2026-01-01T00:00:00Z",
			"data": {"workflowName": "order", "attributes": {"customer": "ann"}},
			"payload": {"customer": "ann", "key": "ann-7", "other": "bob", "again": "ann", "amount": 12.50, "status": "new",
				"at": "2026-02-03T04:05:06Z", "hex": "00ff-7a", "items": ["tea & Töpfe", "SKU-1", "charge"]}},
		{"seq": 2, "type": "step_created", "correlationId": "map.tea%20&%20T%C3%B6pfe.charge#2",
			"data": {"stepName": "charge", "open": ["map.SKU-1.charge", "for-SKU-1"]}, "payload": "ann"},
		{"seq": 3, "type": "step_failed", "correlationId": "charge", "data": {"errorCode": "declined"},
			"payload": {"code": "declined", "message": "ann has no money", "details": {"code": "x1"}}}
	]`
)

func TestRedactedTextsKeepShapeAndEquality(t *testing.T) {
	t.Parallel()
	var events []json.RawMessage
	if err := json.Unmarshal([]byte(log), &events); err != nil {
		t.Fatal(err)
	}
	gotRun, got, err := New([]byte("a key"), []string{"status"}).Run(json.RawMessage(run), events)
	if err != nil {
		t.Fatal(err)
	}
	all := string(gotRun)
	for _, e := range got {
		all += "\n" + string(e)
	}
	for _, secret := range []string{"ann", "bob", "tea", "SKU", "12:", `"input"`, "00ff"} {
		if strings.Contains(all, secret) {
			t.Errorf("%q is left in\n%s", secret, all)
		}
	}
	for _, kept := range []string{
		`"amount":12.50`, `"status":"new"`, `"2026-02-03T04:05:06Z"`, `"id":"wrun_1"`, `"workflowName":"order"`,
		`"stepName":"charge"`, `"correlationId":"charge"`, `"code":"declined"`, `"errorCode":"declined"`,
	} {
		if !strings.Contains(all, kept) {
			t.Errorf("%s is missing in\n%s", kept, all)
		}
	}
	var input struct {
		Customer, Key, Other, Again, Hex string
		Items                            []string
	}
	var created struct {
		Payload json.RawMessage
		Data    struct{ Attributes map[string]string }
	}
	if err := json.Unmarshal(got[0], &created); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(created.Payload, &input); err != nil {
		t.Fatal(err)
	}
	if input.Customer != input.Again || input.Customer == input.Other || created.Data.Attributes["customer"] != input.Customer ||
		!strings.Contains(all, `"key":"`+input.Key+`"`) {
		t.Errorf("texts are not as equal as before:\n%s", all)
	}
	for text, shape := range map[string]string{
		input.Customer: `^[a-z]{3}$`, input.Key: `^[a-z]{3}-\d$`, input.Hex: `^\d\d[a-f]{2}-\d[a-f]$`,
		input.Items[0]: `^[a-z]{3} & [A-Z][à-õ][a-z]{3}$`, input.Items[1]: `^[A-Z]{3}-\d$`,
	} {
		if !regexp.MustCompile(shape).MatchString(text) {
			t.Errorf("%q has not the shape %s", text, shape)
		}
	}
	var step struct {
		CorrelationID string
		Data          struct{ Open []string }
	}
	if err := json.Unmarshal(got[1], &step); err != nil {
		t.Fatal(err)
	}
	if want := "map." + escape(input.Items[0]) + ".charge#2"; step.CorrelationID != want {
		t.Errorf("the ID is %s, want %s", step.CorrelationID, want)
	}
	if got, want := strings.Join(step.Data.Open, " "), "map."+input.Items[1]+".charge for-"+input.Items[1]; got != want {
		t.Errorf("the open IDs are %s, want %s", got, want)
	}
}

// TestNoTextIsLeft plants a text in each place that can have one, most of them with the name of a field that is plain
// elsewhere.
func TestNoTextIsLeft(t *testing.T) {
	t.Parallel()
	const secret = "Ann.Smith@example.com"
	for name, c := range map[string]struct{ run, event string }{
		"key":                {run: `{"key": "SECRET"}`},
		"attribute of a run": {run: `{"attributes": {"id": "SECRET", "status": "SECRET", "code": "SECRET"}}`},
		"input":              {run: `{"input": {"id": "SECRET"}}`},
		"output":             {run: `{"output": "SECRET"}`},
		"error of a run":     {run: `{"error": {"message": "SECRET", "code": "c"}}`},
		"reason of a run":    {run: `{"cancelReason": "SECRET"}`},
		"held":               {run: `{"held": {"code": "diverged", "message": "SECRET"}}`},
		"attribute": {event: `{"type": "run_created", "data": {"attributes": {"id": "SECRET", ` +
			`"signal": "SECRET"}}}`},
		"keys of a run": {event: `{"type": "run_created", "data": {"uniqueKey": "SECRET", ` +
			`"idempotencyKey": "SECRET", "parentStep": "SECRET"}}`},
		"change": {event: `{"type": "attr_set", "data": {"changes": [{"key": "id", ` +
			`"value": "SECRET"}]}}`},
		"other data": {event: `{"type": "step_created", ` +
			`"data": {"executionContext": {"id": "SECRET", "build": ["SECRET"]}}}`},
		"reason": {event: `{"type": "cancel_requested", "data": {"reason": "SECRET"}}`},
		"condition": {event: `{"type": "hook_created", "data": {"signal": "paid", ` +
			`"condition": "data.by == \"SECRET\""}}`},
		"token":      {event: `{"type": "hook_created", "data": {"token": "approve-SECRET"}}`},
		"message ID": {event: `{"type": "hook_received", "data": {"messageId": "SECRET"}}`},
		"payload":    {event: `{"type": "hook_received", "payload": "SECRET"}`},
		"fields of a payload": {event: `{"type": "hook_received", "payload": {"id": "SECRET", ` +
			`"status": ["SECRET"], "code": {"at": "SECRET"}}}`},
		"key of a map": {event: `{"type": "hook_received", "payload": {"SECRET": 1, "n": {"SECRET": 2}}}`},
		"store":        {event: `{"type": "store_set", "payload": {"id": "SECRET"}}`},
		"details of an error": {event: `{"type": "step_failed", "payload": {"code": "c", ` +
			`"message": "no: SECRET", "details": {"code": "SECRET"}}}`},
		"error as a text": {event: `{"type": "run_failed", "payload": "SECRET"}`},
		"ID": {event: `{"type": "wait_created", "correlationId": "wait-SECRET", ` +
			`"payload": "SECRET"}`},
		"ID in lower case": {event: `{"type": "wait_created", ` +
			`"correlationId": "wait-ann%2Esmith@example%2Ecom", "payload": "SECRET"}`},
		"open ID": {event: `{"type": "step_created", "data": {"open": ["SECRET"]}, ` +
			`"payload": "SECRET"}`},
		"name of a step": {event: `{"type": "step_created", "correlationId": "mail SECRET", ` +
			`"data": {"stepName": "mail SECRET"}, "payload": "SECRET"}`},
	} {
		run, event := cmp.Or(c.run, `{}`), cmp.Or(c.event, `{}`)
		events := []json.RawMessage{json.RawMessage(strings.ReplaceAll(event, "SECRET", secret))}
		gotRun, got, err := New([]byte("a key"), nil).Run(json.RawMessage(strings.ReplaceAll(run, "SECRET", secret)), events)
		if err != nil {
			t.Fatal(name, err)
		}
		all := strings.ToLower(string(gotRun) + string(got[0]))
		for _, part := range []string{"ann", "smith", "example"} {
			if strings.Contains(all, part) {
				t.Errorf("%s: %q is left in %s", name, part, all)
			}
		}
	}
}

// TestWhatIsKept has the names that programmers made.
func TestWhatIsKept(t *testing.T) {
	t.Parallel()
	for _, event := range []string{
		`{"data":{"changes":[{"key":"customer-name","value":null}]},"type":"attr_set"}`,
		`{"payload":{"counters/eu.west":1},"type":"store_set"}`,
		`{"payload":{"code":"declined"},"type":"step_failed"}`,
		`{"payload":{"$ref":1,"X-Request-Id":2,"größe":3,"line2":4},"type":"hook_received"}`,
		`{"correlationId":"pay card","data":{"at":"order.go:41","stepName":"pay card"},"type":"step_created"}`,
		`{"data":{"step":{"childId":"wrun_1"}},"type":"step_created"}`,
	} {
		events := []json.RawMessage{json.RawMessage(`{"payload":["card","pay"]}`), json.RawMessage(event)}
		_, got, err := New([]byte("a key"), nil).Run(json.RawMessage(`{}`), events)
		if err != nil || string(got[1]) != event {
			t.Errorf("%s became %s, %v", event, got[1], err)
		}
	}
}

func TestTextsOfAnotherCaseStayAlike(t *testing.T) {
	t.Parallel()
	r := New([]byte("a key"), nil)
	made := r.text("Ann Smith-7")
	if lower := r.text("ann smith-7"); lower != strings.ToLower(made) || r.text("ANN SMITH-7") != strings.ToUpper(made) {
		t.Errorf("%q and %q", made, lower)
	}
}

func TestAnotherKeyMakesOtherTexts(t *testing.T) {
	t.Parallel()
	const text = "a text of some length"
	if a, b := New([]byte("a"), nil).text(text), New([]byte("b"), nil).text(text); a == b {
		t.Errorf("both are %q", a)
	}
}

func TestShortTextsStayDifferent(t *testing.T) {
	t.Parallel()
	r := New([]byte("a key"), nil)
	seen := map[string]bool{}
	for _, c := range "0123456789" {
		seen[r.text(string(c))] = true
	}
	if len(seen) < 10 {
		t.Errorf("ten digits became %d", len(seen))
	}
}
