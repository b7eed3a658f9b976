package entities

import (
	"slices"
	"strings"
	"time"
)

// WebhookScheme is how a webhook's sender signs its requests.
type WebhookScheme string

// The schemes that a hook may demand.
const (
	SchemeGitHub WebhookScheme = "github"
	SchemeStripe WebhookScheme = "stripe"
	SchemeSlack  WebhookScheme = "slack"
	// SchemeStandard is that of the Standard Webhooks, which many senders use.
	SchemeStandard WebhookScheme = "standard"
	// SchemeGeneric is X-Signature-256: sha256= and the HMAC of the body in hexadecimal digits.
	SchemeGeneric WebhookScheme = "generic"
)

// WebhookSchemes are all schemes.
func WebhookSchemes() []WebhookScheme {
	return []WebhookScheme{SchemeGitHub, SchemeStripe, SchemeSlack, SchemeStandard, SchemeGeneric}
}

// MaxWebhookRespond is how long a request may wait for the workflow's response.
const MaxWebhookRespond = time.Minute

// Validate checks what a hook says about webhooks. It fails with [ErrInvalid].
func (w WebhookSpec) Validate() error {
	if w.RespondMS < 0 || w.RespondMS > MaxWebhookRespond.Milliseconds() {
		return Invalid("webhook.respond is not between 0s and %s", MaxWebhookRespond)
	}
	if (w.Verify == "") != (w.Secret == "") {
		return Invalid("webhook: verify names the scheme and secret the secret; want both or none")
	}
	if w.Verify == "" {
		return nil
	}
	if !slices.Contains(WebhookSchemes(), WebhookScheme(w.Verify)) {
		return Invalid("webhook.verify %q is none of %v", w.Verify, WebhookSchemes())
	}
	return ValidateID("webhook.secret", w.Secret)
}

// responsePrefix begins the names of streams that are responses to webhooks.
const responsePrefix = "webhook "

// ResponseStream is the stream that has the response to a request to one of the run's webhooks, once there is one.
func ResponseStream(runID RunID, hook HookID, request string) StreamName {
	return StreamName(responsePrefix + strings.Join([]string{string(runID), string(hook), request}, " "))
}
