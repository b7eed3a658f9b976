package webhook

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		spec  entities.WebhookSpec
		valid bool
	}{
		{entities.WebhookSpec{}, true},
		{entities.WebhookSpec{RespondMS: time.Minute.Milliseconds()}, true},
		{entities.WebhookSpec{RespondMS: time.Minute.Milliseconds() + 1}, false},
		{entities.WebhookSpec{RespondMS: -1}, false},
		{entities.WebhookSpec{Verify: "stripe", Secret: "s"}, true},
		{entities.WebhookSpec{Verify: "stripe"}, false},
		{entities.WebhookSpec{Secret: "s"}, false},
		{entities.WebhookSpec{Verify: "Stripe", Secret: "s"}, false},
		{entities.WebhookSpec{Verify: "none", Secret: "s"}, false},
		{entities.WebhookSpec{Verify: "stripe", Secret: "a/b"}, false},
	} {
		t.Run(fmt.Sprint(tt.spec), func(t *testing.T) {
			t.Parallel()
			err := Validate(tt.spec)
			if tt.valid && err != nil || !tt.valid && !errors.Is(err, entities.ErrInvalid) {
				t.Errorf("got error %v, want valid: %t", err, tt.valid)
			}
		})
	}
}
