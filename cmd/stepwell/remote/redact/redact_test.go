package redact

import (
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
