package entities

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
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
		return invalid("webhook.respond is not between 0s and %s", MaxWebhookRespond)
	}
	if (w.Verify == "") != (w.Secret == "") {
		return invalid("webhook: verify names the scheme and secret the secret; want both or none")
	}
	if w.Verify == "" {
		return nil
	}
	if !slices.Contains(WebhookSchemes(), WebhookScheme(w.Verify)) {
		return invalid("webhook.verify %q is none of %v", w.Verify, WebhookSchemes())
	}
	return ValidateID("webhook.secret", w.Secret)
}

// WebhookByToken reads the hook that is a webhook and holds the token at the given time, in whichever project. It
// fails with [ErrHookNotFound], also when two projects have such a hook: then the token is nobody's.
func WebhookByToken(ctx context.Context, q Querier, token string, at time.Time) (Hook, error) {
	rows, err := q.Query(ctx,
		`SELECT `+hookColumns+` FROM hooks WHERE token = $1 AND is_webhook AND `+held(2)+` LIMIT 2`, token, at)
	if err != nil {
		return Hook{}, fmt.Errorf("read webhook: %w", err)
	}
	hooks, err := pgx.CollectRows(rows, pgx.RowToStructByName[Hook])
	if err != nil {
		return Hook{}, fmt.Errorf("read webhook: %w", err)
	}
	if len(hooks) != 1 {
		return Hook{}, ErrHookNotFound
	}
	return hooks[0], nil
}

// responsePrefix begins the names of streams that are responses to webhooks.
const responsePrefix = "webhook "

// ResponseStream is the stream that has the response to a request to one of the run's webhooks, once there is one.
func ResponseStream(runID RunID, hook HookID, request string) StreamName {
	return StreamName(responsePrefix + strings.Join([]string{string(runID), string(hook), request}, " "))
}
