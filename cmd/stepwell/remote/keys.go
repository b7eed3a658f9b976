package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type keysCmd struct {
	List   listKeysCmd  `cmd:"" help:"List the API keys, without their values."`
	Show   showKeyCmd   `cmd:"" help:"Show an API key, without its value."`
	Create createKeyCmd `cmd:"" help:"Create an API key and print it; it cannot be shown again."`
	Revoke revokeKeyCmd `cmd:"" help:"Revoke API keys for good."`
}

var keyColumns = []column[api.Key]{
	{"ID", func(k api.Key) any { return k.ID }},
	{"NAME", func(k api.Key) any { return k.Name }},
	{"ROLE", func(k api.Key) any { return strings.TrimSpace(string(k.Role) + " " + k.Deployments) }},
	{"PROJECT", func(k api.Key) any { return k.Project }},
	{"PREFIX", func(k api.Key) any { return k.Prefix }},
	{"CREATED", func(k api.Key) any { return k.CreatedAt }},
	{"LAST USED", func(k api.Key) any { return k.LastUsedAt }},
	{"EXPIRES", func(k api.Key) any { return k.ExpiresAt }},
	{"REVOKED", func(k api.Key) any { return k.RevokedAt }},
}

type whoamiCmd struct{}

// Run prints whose key it is, and what it may do.
func (whoamiCmd) Run(ctx context.Context, s *Session) error {
	return show(ctx, s, path("whoami"), nil, clientFields)
}

func clientFields(c api.Client) []field {
	return []field{
		{"project", c.Project}, {"role", c.Role}, {"actor", c.Actor}, {"key", c.KeyName}, {"expires", c.ExpiresAt},
		{"operator", c.Operator}, {"server", c.Version},
	}
}

// projectFlag selects the project of a command.
type projectFlag struct {
	Project string `placeholder:"NAME" help:"A project other than the key's; requires an admin key of project default."`
}

func (p projectFlag) query() url.Values {
	return nonEmpty(url.Values{"project": {p.Project}})
}

type listKeysCmd struct {
	projectFlag
	paging
}

// Run lists the keys.
func (c listKeysCmd) Run(ctx context.Context, s *Session) error {
	return list(ctx, s, path("keys"), c.query(), c.paging, keyColumns)
}

type showKeyCmd struct {
	ID string `arg:"" help:"The key's ID."`
	projectFlag
}

// Run prints the key.
func (c showKeyCmd) Run(ctx context.Context, s *Session) error {
	return show(ctx, s, path("keys", c.ID), c.query(), func(k api.Key) []field {
		return []field{
			{"key", k.ID},
			{"name", k.Name},
			{"role", k.Role},
			{"deployments", k.Deployments},
			{"project", k.Project},
			{"prefix", k.Prefix},
			{"created", k.CreatedAt},
			{"last used", k.LastUsedAt},
			{"expires", k.ExpiresAt},
			{"revoked", k.RevokedAt},
		}
	})
}

type createKeyCmd struct {
	Name        string `arg:"" help:"A name for the key, such as ci."`
	Role        string `enum:"admin,write,read,metadata,invoke,worker" required:"" help:"The key's permissions: ${enum}."`
	Deployments string `placeholder:"PATTERN" help:"With the role worker: the deployments to register, such as orders@*."`
	ExpiresAt   string `placeholder:"TIME" help:"When the key expires, in RFC 3339."`
	projectFlag
}

// Run creates the key. Only the key itself goes to standard output, so that it can be piped to a secret store.
func (c createKeyCmd) Run(ctx context.Context, s *Session) error {
	var created api.MadeKey
	body := jsonBody{
		"name": c.Name, "role": c.Role, "deployments": c.Deployments, "project": c.Project, "expiresAt": c.ExpiresAt,
	}.omitZero()
	raw, err := s.client.call(ctx, http.MethodPost, path("keys"), body, &created)
	if err != nil {
		return err
	}
	s.note("created key %s of project %s with role %s; it cannot be shown again",
		created.ID, created.Project, created.Role)
	return s.printResult(raw, "%s", created.Key)
}

type revokeKeyCmd struct {
	IDs []string `arg:"" name:"id" help:"The keys' IDs."`
	projectFlag
}

// Run revokes the keys.
func (c revokeKeyCmd) Run(ctx context.Context, s *Session) error {
	return forEach(c.IDs, func(id string) error { return s.client.delete(ctx, withQuery(path("keys", id), c.query())) })
}

type projectsCmd struct {
	List   listProjectsCmd  `cmd:"" help:"List the projects."`
	Create createProjectCmd `cmd:"" help:"Create a project."`
	Limit  limitProjectCmd  `cmd:"" help:"Limit what a project may start and store. Other limits stay as they are."`
	Pause  pauseProjectCmd  `cmd:"" help:"Start and call nothing of a project until it is resumed."`
	Resume resumeProjectCmd `cmd:"" help:"Let a paused project go on."`
}

var projectColumns = []column[api.Project]{
	{"NAME", func(p api.Project) any { return p.Name }},
	{"CREATED", func(p api.Project) any { return p.CreatedAt }},
	{"PAUSED", func(p api.Project) any { return p.PausedAt }},
	{"STARTS TODAY", func(p api.Project) any {
		l := orZero(p.Limits)
		return useOf(l.StartsToday, l.DailyStarts)
	}},
	{"BYTES STORED", func(p api.Project) any {
		l := orZero(p.Limits)
		return useOf(l.StoredBytes, l.StorageBytes)
	}},
}

// useOf returns how much of a limit is in use, such as "312 of 10000"; empty without a limit.
func useOf(used, limit *int64) string {
	switch {
	case limit == nil:
		return ""
	case used == nil:
		return fmt.Sprintf("? of %d", *limit)
	default:
		return fmt.Sprintf("%d of %d", *used, *limit)
	}
}

type listProjectsCmd struct{}

// Run lists the projects.
func (listProjectsCmd) Run(ctx context.Context, s *Session) error {
	return listUnpaged(ctx, s, path("projects"), nil, projectColumns)
}

type createProjectCmd struct {
	Name string `arg:"" help:"The project's name."`
}

// Run creates the project. An existing one is left unchanged.
func (c createProjectCmd) Run(ctx context.Context, s *Session) error {
	return s.change(ctx, http.MethodPut, path("projects", c.Name), nil, "project %s exists", c.Name)
}

// limit is a flag's value: a number, or none for no limit.
type limit struct{ json.RawMessage }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *limit) UnmarshalText(text []byte) error {
	if string(text) == "none" {
		text = []byte("null")
	} else if _, err := strconv.ParseUint(string(text), 10, 63); err != nil {
		return fmt.Errorf("%q is neither a whole number from 0 nor none", text)
	}
	l.RawMessage = text
	return nil
}

type pauseProjectCmd struct {
	Name string `arg:"" help:"The project's name."`
}

// Run pauses the project.
func (c pauseProjectCmd) Run(ctx context.Context, s *Session) error {
	body := jsonBody{"paused": true}
	return s.change(ctx, http.MethodPut, path("projects", c.Name), body, "project %s is paused", c.Name)
}

type resumeProjectCmd struct {
	Name string `arg:"" help:"The project's name."`
}

// Run resumes the project.
func (c resumeProjectCmd) Run(ctx context.Context, s *Session) error {
	return s.change(ctx, http.MethodPut, path("projects", c.Name), jsonBody{"paused": false}, "project %s goes on", c.Name)
}

type limitProjectCmd struct {
	Name         string `arg:"" help:"The project's name. It is created if it does not exist."`
	DailyStarts  limit  `placeholder:"NUMBER" help:"The most runs to start in a day, in UTC, or none for no limit."`
	StorageBytes limit  `placeholder:"NUMBER" help:"The most bytes to store and yet start runs, or none for no limit."`

	MaxDepth       limit `placeholder:"NUMBER" help:"The most runs that may lead to a run, or none for the default of 32."`
	MaxDescendants limit `placeholder:"NUMBER" help:"The most open runs below one run, or none for the default of 10000."`
}

// Run sets the limits.
func (c limitProjectCmd) Run(ctx context.Context, s *Session) error {
	limits := jsonBody{
		"dailyStarts": c.DailyStarts, "storageBytes": c.StorageBytes, "maxDepth": c.MaxDepth,
		"maxDescendants": c.MaxDescendants,
	}.omitZero()
	return s.change(ctx, http.MethodPut, path("projects", c.Name), jsonBody{"limits": limits},
		"project %s is limited", c.Name)
}

type signingKeysCmd struct {
	List   listSigningKeysCmd  `cmd:"" help:"List the signing keys, without their secrets."`
	Create createSigningKeyCmd `cmd:"" help:"Create a signing key and print its secret; it cannot be shown again."`
	Remove removeSigningKeyCmd `cmd:"" help:"Delete signing keys for good."`
}

var signingKeyColumns = []column[api.SigningKey]{
	{"ID", func(k api.SigningKey) any { return k.ID }},
	{"CREATED", func(k api.SigningKey) any { return k.CreatedAt }},
}

type listSigningKeysCmd struct{}

// Run lists the signing keys.
func (listSigningKeysCmd) Run(ctx context.Context, s *Session) error {
	return listUnpaged(ctx, s, path("signing-keys"), nil, signingKeyColumns)
}

type createSigningKeyCmd struct {
	Rotate bool `help:"If the project has two keys, the most there can be, delete the older one first."`
}

// Run creates the signing key. Only its secret goes to standard output.
func (c createSigningKeyCmd) Run(ctx context.Context, s *Session) error {
	if c.Rotate {
		if err := removeOldestSigningKey(ctx, s); err != nil {
			return err
		}
	}
	var created api.MadeSigningKey
	raw, err := s.client.call(ctx, http.MethodPost, path("signing-keys"), nil, &created)
	if err != nil {
		return err
	}
	s.note("created signing key %s; its secret cannot be shown again", created.ID)
	return s.printResult(raw, "%s", created.Secret)
}

// removeOldestSigningKey makes a place for another signing key.
func removeOldestSigningKey(ctx context.Context, s *Session) error {
	var keys api.Page[api.SigningKey]
	if _, err := s.client.call(ctx, http.MethodGet, path("signing-keys"), nil, &keys); err != nil || len(keys.Data) < 2 {
		return err
	}
	oldest := slices.MinFunc(keys.Data, func(a, b api.SigningKey) int { return a.CreatedAt.Compare(b.CreatedAt.Time) })
	s.note("removed signing key %s", oldest.ID)
	return s.client.delete(ctx, path("signing-keys", oldest.ID))
}

type removeSigningKeyCmd struct {
	IDs []string `arg:"" name:"id" help:"The signing keys' IDs."`
}

// Run deletes the signing keys.
func (c removeSigningKeyCmd) Run(ctx context.Context, s *Session) error {
	return forEach(c.IDs, func(id string) error { return s.client.delete(ctx, path("signing-keys", id)) })
}

type auditCmd struct {
	List listAuditCmd `cmd:"" help:"List who did what, newest first."`
}

type listAuditCmd struct {
	Actor   string `xor:"of" placeholder:"ACTOR" help:"Only what this actor did, such as a key's ID."`
	Action  string `xor:"of" placeholder:"ACTION" help:"Only this action, such as key.create."`
	Subject string `xor:"of" placeholder:"SUBJECT" help:"Only what was done to this ID or name."`
	projectFlag
	paging
}

// Run lists the audit log.
func (c listAuditCmd) Run(ctx context.Context, s *Session) error {
	query := nonEmpty(url.Values{
		"project": {c.Project}, "actor": {c.Actor}, "action": {c.Action}, "subject": {c.Subject},
	})
	return list(ctx, s, path("audit"), query, c.paging, auditColumns)
}

var auditColumns = []column[api.Action]{
	{"TIME", func(a api.Action) any { return a.At }},
	{"ACTOR", func(a api.Action) any { return a.Actor }},
	{"ADDRESS", func(a api.Action) any { return a.Address }},
	{"ACTION", func(a api.Action) any { return a.Action }},
	{"SUBJECT", func(a api.Action) any { return a.Subject }},
	{"DETAIL", func(a api.Action) any { return strings.TrimPrefix(string(a.Detail), "{}") }},
}

type secretsCmd struct {
	List   listSecretsCmd  `cmd:"" help:"List the secrets, without their values."`
	Set    setSecretCmd    `cmd:"" help:"Create or replace a secret; reads its values from standard input, one per line."`
	Remove removeSecretCmd `cmd:"" help:"Delete a secret."`
}

var secretColumns = []column[api.Secret]{
	{"NAME", func(c api.Secret) any { return c.Name }},
	{"CREATED", func(c api.Secret) any { return c.CreatedAt }},
	{"UPDATED", func(c api.Secret) any { return c.UpdatedAt }},
	{"SENT TO", func(c api.Secret) any { return strings.Join(c.Origins, ", ") }},
}

type listSecretsCmd struct{}

// Run lists the secrets.
func (listSecretsCmd) Run(ctx context.Context, s *Session) error {
	return listUnpaged(ctx, s, path("secrets"), nil, secretColumns)
}

type setSecretCmd struct {
	Name     string   `arg:"" help:"The secret's name, as hooks and HTTP steps refer to it."`
	Origins  []string `name:"origin" placeholder:"URL" xor:"origin" help:"Where HTTP steps may send it; else as before."`
	NoOrigin bool     `xor:"origin" help:"HTTP steps may send it nowhere."`
}

// Run stores the secret. Its values are not arguments, which every user of the machine can see.
func (c setSecretCmd) Run(ctx context.Context, s *Session) error {
	values := []string{}
	lines := bufio.NewScanner(s.Stdin)
	for lines.Scan() {
		if v := strings.TrimSpace(lines.Text()); v != "" {
			values = append(values, v)
		}
	}
	if err := lines.Err(); err != nil {
		return usageErrorf("read standard input: %w", err)
	}
	if len(values) == 0 {
		return usageErrorf("no value on standard input: echo VALUE | stepwell secrets set %s", c.Name)
	}
	body := jsonBody{"values": values, "origins": c.Origins}.omitZero()
	if c.NoOrigin {
		body["origins"] = []string{}
	}
	return s.change(ctx, http.MethodPut, path("secrets", c.Name), body, "set secret %s", c.Name)
}

type removeSecretCmd struct {
	Name string `arg:"" help:"The secret's name."`
}

// Run deletes the secret.
func (c removeSecretCmd) Run(ctx context.Context, s *Session) error {
	return s.client.delete(ctx, path("secrets", c.Name))
}
