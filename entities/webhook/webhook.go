// Package webhook defines the names that are shared by the hooks of a run and the endpoint that receives webhooks for
// them: the signature schemes, the ways in which payloads come, and the stream with the workflow's response. Package
// handlers/webhook/signature implements the schemes.
package webhook

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// MaxRespond is the longest time that a request may wait for the workflow's response.
const MaxRespond = time.Minute

// RequestPrefix begins the IDs of requests.
const RequestPrefix = "hreq_"

// Scheme is a scheme by which senders of webhooks sign their requests.
type Scheme string

// The supported schemes.
const (
	GitHub Scheme = "github"
	Stripe Scheme = "stripe"
	Slack  Scheme = "slack"
	// Standard is the scheme of the Standard Webhooks specification, which many senders use.
	Standard Scheme = "standard"
	// Generic is a header X-Signature-256 of "sha256=" and the HMAC of the body in hexadecimal digits.
	Generic Scheme = "generic"
)

// Schemes returns the supported schemes.
func Schemes() []Scheme { return []Scheme{GitHub, Stripe, Slack, Standard, Generic} }

// Vote is required by the hooks of approvals instead of a scheme: payloads are votes that the API has checked.
const Vote = "vote"

// The ways in which the payload of a hook_received came: see [entities.EventData].
const (
	// ViaAPI is a request to the API with a key.
	ViaAPI = "api"
	// ViaWebhook is a request to the hook's public URL.
	ViaWebhook = "webhook"
	// ViaSignal is a signal that the hook waited for.
	ViaSignal = "signal"
	// ViaSDK is an event that a client of the Workflow SDK wrote, with the key of its app.
	ViaSDK = "sdk"
)

// ErrUnverified means that a hook requires signed requests, and the payload did not come in one; an [UnverifiedError]
// says what is required.
var ErrUnverified = errors.New("not verified")

// UnverifiedError is an [ErrUnverified] with the hook and the scheme that it requires.
type UnverifiedError struct {
	Hook entities.HookID
	// Scheme is the signature scheme that the hook requires.
	Scheme string
}

func (e *UnverifiedError) Error() string {
	if e.Scheme == Vote {
		return fmt.Sprintf("hook %s is an approval: it accepts only votes, through the API", e.Hook)
	}
	return fmt.Sprintf(`hook %s accepts only requests to its URL that are signed (%s); to resume it nevertheless, `+
		`use a key of role admin and send "unverified": true`, e.Hook, e.Scheme)
}

// Is makes errors.Is(err, ErrUnverified) true.
func (e *UnverifiedError) Is(target error) bool { return target == ErrUnverified }

// Details returns the machine-readable part of the error.
func (e *UnverifiedError) Details() map[string]any {
	return map[string]any{"hookId": e.Hook, "verify": e.Scheme}
}

// Validate validates the specification of a hook's webhooks. It fails with [entities.ErrInvalid].
func Validate(spec entities.WebhookSpec) error {
	if spec.RespondMS < 0 || spec.RespondMS > MaxRespond.Milliseconds() {
		return entities.Invalid("webhook.respond is not between 0s and %s", MaxRespond)
	}
	if (spec.Verify == "") != (spec.Secret == "") {
		return entities.Invalid("webhook.verify and webhook.secret go together: want both or neither")
	}
	if spec.Verify == "" {
		return nil
	}
	if !slices.Contains(Schemes(), Scheme(spec.Verify)) {
		return entities.Invalid("webhook.verify %q is not one of %v", spec.Verify, Schemes())
	}
	return entities.ValidateID("webhook.secret", spec.Secret)
}

// ResponseStream returns the name of the stream that holds the workflow's response to a webhook request, once it has
// responded. The request because of which a trigger has started the run has no hook.
func ResponseStream(runID entities.RunID, hook entities.HookID, request string) entities.StreamName {
	return entities.StreamName(strings.Join([]string{"webhook", string(runID), string(hook), request}, " "))
}
