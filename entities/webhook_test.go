package entities

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestWebhookSpecs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		spec  WebhookSpec
		valid bool
	}{
		{WebhookSpec{}, true},
		{WebhookSpec{RespondMS: time.Minute.Milliseconds()}, true},
		{WebhookSpec{RespondMS: time.Minute.Milliseconds() + 1}, false},
		{WebhookSpec{RespondMS: -1}, false},
		{WebhookSpec{Verify: "stripe", Secret: "s"}, true},
		{WebhookSpec{Verify: "stripe"}, false},
		{WebhookSpec{Secret: "s"}, false},
		{WebhookSpec{Verify: "Stripe", Secret: "s"}, false},
		{WebhookSpec{Verify: "none", Secret: "s"}, false},
		{WebhookSpec{Verify: "stripe", Secret: "a/b"}, false},
	} {
		t.Run(fmt.Sprint(tt.spec), func(t *testing.T) {
			t.Parallel()
			wantInvalid(t, tt.spec.Validate(), tt.valid)
		})
	}
}

func TestSecretsAreChecked(t *testing.T) {
	t.Parallel()
	long := SecretValue(strings.Repeat("x", maxSecretLength+1))
	for i, tt := range []struct {
		name   string
		values []SecretValue
		valid  bool
	}{
		{"s", []SecretValue{"v"}, true},
		{"s", []SecretValue{long[1:]}, true},
		{"s", []SecretValue{long}, false},
		{"s", nil, false},
		{"s", make([]SecretValue, 11), false},
		{"s", []SecretValue{"v", ""}, false},
		{"s", []SecretValue{"v\x00"}, false},
		{"", []SecretValue{"v"}, false},
		{"a b", []SecretValue{"v"}, false},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			err := ValidateSecret(tt.name, tt.values)
			wantInvalid(t, err, tt.valid)
			if err != nil && strings.Contains(err.Error(), "xxx") {
				t.Errorf("the error repeats the value: %.60s", err)
			}
		})
	}
}

// TestSecretsDoNotShow however they are printed.
func TestSecretsDoNotShow(t *testing.T) {
	t.Parallel()
	v := struct{ Values []SecretValue }{[]SecretValue{"hunter2"}}
	encoded, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v.Values[0], "all", v)
	for _, text := range []string{
		string(encoded), log.String(), fmt.Sprint(v), fmt.Sprintf("%v %+v %#v %s %q", v, v, v, v.Values, v.Values[0]),
	} {
		if strings.Contains(text, "hunter2") || !strings.Contains(text, hidden) {
			t.Errorf("got %s", text)
		}
	}
}
