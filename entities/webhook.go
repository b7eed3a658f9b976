package entities

import (
	"slices"
	"strings"
	"time"
)

// WebhookSpec specifies how a hook receives webhooks.
type WebhookSpec struct {
	// Verify is the [WebhookScheme] by which requests must be signed, and Secret the name of the project's secret for
	// it. Both are empty if requests need no signature.
	Verify string `json:"verify,omitempty"`
	Secret string `json:"secret,omitempty"`
	// RespondMS is how many milliseconds a request waits for the workflow's response; 0 to respond at once.
	RespondMS int64 `json:"respondMs,omitempty"`
}

// Validate validates the specification. It fails with [ErrInvalid].
func (w WebhookSpec) Validate() error {
	if w.RespondMS < 0 || w.RespondMS > MaxWebhookRespond.Milliseconds() {
		return Invalid("webhook.respond is not between 0s and %s", MaxWebhookRespond)
	}
	if (w.Verify == "") != (w.Secret == "") {
		return Invalid("webhook.verify and webhook.secret go together: want both or neither")
	}
	if w.Verify == "" {
		return nil
	}
	if !slices.Contains(WebhookSchemes(), WebhookScheme(w.Verify)) {
		return Invalid("webhook.verify %q is not one of %v", w.Verify, WebhookSchemes())
	}
	return ValidateID("webhook.secret", w.Secret)
}

// WebhookScheme is a scheme by which senders of webhooks sign their requests.
type WebhookScheme string

// The supported schemes.
const (
	SchemeGitHub WebhookScheme = "github"
	SchemeStripe WebhookScheme = "stripe"
	SchemeSlack  WebhookScheme = "slack"
	// SchemeStandard is the scheme of the Standard Webhooks specification, which many senders use.
	SchemeStandard WebhookScheme = "standard"
	// SchemeGeneric is a header X-Signature-256 of "sha256=" and the HMAC of the body in hexadecimal digits.
	SchemeGeneric WebhookScheme = "generic"
)

// WebhookSchemes returns the supported schemes.
func WebhookSchemes() []WebhookScheme {
	return []WebhookScheme{SchemeGitHub, SchemeStripe, SchemeSlack, SchemeStandard, SchemeGeneric}
}

// MaxWebhookRespond is the longest time that a request may wait for the workflow's response.
const MaxWebhookRespond = time.Minute

// responsePrefix is the prefix of the names of streams that hold responses to webhooks.
const responsePrefix = "webhook "

// ResponseStream returns the name of the stream that holds the workflow's response to a webhook request, once it has
// responded.
func ResponseStream(runID RunID, hook HookID, request string) StreamName {
	return StreamName(responsePrefix + strings.Join([]string{string(runID), string(hook), request}, " "))
}
