package entities

import (
	"fmt"
	"testing"
	"time"
)

func TestValidateWebhookSpec(t *testing.T) {
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
