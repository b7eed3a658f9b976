package remote

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

type auditCmd struct {
	List listAuditCmd `cmd:"" help:"List who did what, the newest first."`
}

type listAuditCmd struct {
	inProject
	paging
	ordering
}

// Run lists the actions.
func (c listAuditCmd) Run(ctx context.Context, s *Session) error {
	query := c.query()
	c.into(query)
	return list(ctx, s, path("audit"), query, c.paging, actionColumns)
}

type action struct {
	Actor, Action, Subject string

	At     time.Time
	Detail json.RawMessage
}

var actionColumns = []column[action]{
	{"TIME", func(s *Session, a action) string { return s.when(a.At) }},
	{"WHO", func(_ *Session, a action) string { return a.Actor }},
	{"ACTION", func(_ *Session, a action) string { return a.Action }},
	{"SUBJECT", func(_ *Session, a action) string { return a.Subject }},
	{"DETAIL", func(_ *Session, a action) string { return strings.TrimPrefix(string(a.Detail), "{}") }},
}

type signingKeysCmd struct {
	List   listSigningKeysCmd  `cmd:"" help:"List the keys that sign calls of functions, without their secrets."`
	Create createSigningKeyCmd `cmd:"" help:"Make a signing key, and print its secret; nobody can see it again."`
	Remove removeSigningKeyCmd `cmd:"" help:"Remove signing keys for good."`
}

type signingKey struct {
	ID, Secret string
	CreatedAt  time.Time
}

var signingKeyColumns = []column[signingKey]{
	{"ID", func(_ *Session, k signingKey) string { return k.ID }},
	{"CREATED", func(s *Session, k signingKey) string { return s.when(k.CreatedAt) }},
}

type listSigningKeysCmd struct{}

// Run lists the signing keys.
func (listSigningKeysCmd) Run(ctx context.Context, s *Session) error {
	return listWhole(ctx, s, path("signing-keys"), signingKeyColumns)
}

type createSigningKeyCmd struct{}

// Run makes the signing key. Only its secret goes to standard output.
func (createSigningKeyCmd) Run(ctx context.Context, s *Session) error {
	raw, err := s.client.do(ctx, http.MethodPost, path("signing-keys"), nil)
	if err != nil {
		return err
	}
	var made signingKey
	if err := s.client.decode(raw, &made); err != nil {
		return err
	}
	s.note("signing key %s; its secret is not shown again", made.ID)
	return s.say(raw, "%s", made.Secret)
}

type removeSigningKeyCmd struct {
	IDs []string `arg:"" name:"id" help:"The signing keys' IDs."`
}

// Run removes the signing keys.
func (c removeSigningKeyCmd) Run(ctx context.Context, s *Session) error {
	return each(c.IDs, func(id string) error {
		_, err := s.client.do(ctx, http.MethodDelete, path("signing-keys", id), nil)
		return err
	})
}
