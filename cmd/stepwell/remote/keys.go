package remote

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"
)

type keysCmd struct {
	List   listKeysCmd  `cmd:"" help:"List the API keys, without their values."`
	Create createKeyCmd `cmd:"" help:"Make an API key, and print it; nobody can see it again."`
	Revoke revokeKeyCmd `cmd:"" help:"Revoke API keys for good."`
}

type apiKey struct {
	ID, Name, Role, Project, Prefix, Key string

	CreatedAt, ExpiresAt, RevokedAt time.Time
}

var keyColumns = []column[apiKey]{
	{"ID", func(_ *Session, k apiKey) string { return k.ID }},
	{"NAME", func(_ *Session, k apiKey) string { return k.Name }},
	{"ROLE", func(_ *Session, k apiKey) string { return k.Role }},
	{"PROJECT", func(_ *Session, k apiKey) string { return k.Project }},
	{"BEGINS WITH", func(_ *Session, k apiKey) string { return k.Prefix }},
	{"CREATED", func(s *Session, k apiKey) string { return s.when(k.CreatedAt) }},
	{"EXPIRES", func(s *Session, k apiKey) string { return s.when(k.ExpiresAt) }},
	{"REVOKED", func(s *Session, k apiKey) string { return s.when(k.RevokedAt) }},
}

type listKeysCmd struct{}

// Run lists the keys.
func (listKeysCmd) Run(ctx context.Context, s *Session) error {
	return listWhole(ctx, s, path("keys"), keyColumns)
}

type createKeyCmd struct {
	Name      string `arg:"" help:"What the key is for, such as ci."`
	Role      string `enum:"admin,write,read,metadata,invoke" required:"" placeholder:"ROLE" help:"What it may do: ${enum}."`
	Project   string `placeholder:"ID" help:"The project that it sees; that of the key in use when not given."`
	ExpiresAt string `placeholder:"TIME" help:"Until when it is good, in RFC 3339; for ever when not given."`
}

// Run makes the key. Only the key itself goes to standard output, so that it can be put where it belongs.
func (c createKeyCmd) Run(ctx context.Context, s *Session) error {
	raw, err := s.client.do(ctx, http.MethodPost, path("keys"), options{"name": c.Name, "role": c.Role}.
		text("project", c.Project).text("expiresAt", c.ExpiresAt))
	if err != nil {
		return err
	}
	var made apiKey
	if err := s.client.decode(raw, &made); err != nil {
		return err
	}
	s.note("key %s of project %s, role %s; it is not shown again:", made.ID, made.Project, made.Role)
	return s.say(raw, "%s", made.Key)
}

type revokeKeyCmd struct {
	IDs []string `arg:"" name:"id" help:"The keys' IDs."`
}

// Run revokes the keys.
func (c revokeKeyCmd) Run(ctx context.Context, s *Session) error {
	return each(c.IDs, func(id string) error {
		_, err := s.client.do(ctx, http.MethodDelete, path("keys", id), nil)
		return err
	})
}

type projectsCmd struct {
	List   listProjectsCmd  `cmd:"" help:"List the projects."`
	Create createProjectCmd `cmd:"" help:"Create a project."`
}

type project struct {
	ID, Name  string
	CreatedAt time.Time
}

var projectColumns = []column[project]{
	{"NAME", func(_ *Session, p project) string { return p.Name + p.ID }},
	{"CREATED", func(s *Session, p project) string { return s.when(p.CreatedAt) }},
}

type listProjectsCmd struct{}

// Run lists the projects.
func (listProjectsCmd) Run(ctx context.Context, s *Session) error {
	return listWhole(ctx, s, path("projects"), projectColumns)
}

type createProjectCmd struct {
	Name string `arg:"" help:"The project's name."`
}

// Run creates the project; one that is there stays as it is.
func (c createProjectCmd) Run(ctx context.Context, s *Session) error {
	raw, err := s.client.do(ctx, http.MethodPut, path("projects", c.Name), options{})
	if err != nil {
		return err
	}
	return s.say(raw, "project %s is there", c.Name)
}

type auditCmd struct {
	List listAuditCmd `cmd:"" help:"List who did what, the newest first."`
}

type listAuditCmd struct {
	paging
}

// Run lists the entries. Of their fields those that are texts have columns, and the rest is on one.
func (c listAuditCmd) Run(ctx context.Context, s *Session) error {
	return list(ctx, s, path("audit"), url.Values{}, c.paging, auditColumns)
}

type auditEntry map[string]json.RawMessage

var auditColumns = []column[auditEntry]{
	{"TIME", func(s *Session, e auditEntry) string {
		var t time.Time
		if json.Unmarshal(e["createdAt"], &t) != nil {
			return ""
		}
		return s.when(t)
	}},
	{"ACTION", func(_ *Session, e auditEntry) string { return e.text("action") }},
	{"WHAT", func(_ *Session, e auditEntry) string {
		var rest []string
		for _, name := range sortedKeys(e) {
			if name != "action" && name != "createdAt" {
				rest = append(rest, name+"="+e.text(name))
			}
		}
		return strings.Join(rest, " ")
	}},
}

// text is a field's text, or its JSON if it is none.
func (e auditEntry) text(name string) string {
	var text string
	if json.Unmarshal(e[name], &text) == nil {
		return text
	}
	return string(e[name])
}

type signingKeysCmd struct {
	List   listSigningKeysCmd  `cmd:"" help:"List the keys that sign the server's calls, without what is secret."`
	Create createSigningKeyCmd `cmd:"" help:"Make a signing key."`
	Remove removeSigningKeyCmd `cmd:"" help:"Remove signing keys for good."`
}

type signingKey struct {
	ID, Algorithm, Status, PublicKey string
	CreatedAt                        time.Time
}

var signingKeyColumns = []column[signingKey]{
	{"ID", func(_ *Session, k signingKey) string { return k.ID }},
	{"STATUS", func(_ *Session, k signingKey) string { return k.Status }},
	{"ALGORITHM", func(_ *Session, k signingKey) string { return k.Algorithm }},
	{"CREATED", func(s *Session, k signingKey) string { return s.when(k.CreatedAt) }},
	{"PUBLIC KEY", func(_ *Session, k signingKey) string { return k.PublicKey }},
}

type listSigningKeysCmd struct{}

// Run lists the signing keys.
func (listSigningKeysCmd) Run(ctx context.Context, s *Session) error {
	return listWhole(ctx, s, path("signing-keys"), signingKeyColumns)
}

type createSigningKeyCmd struct{}

// Run makes the signing key.
func (createSigningKeyCmd) Run(ctx context.Context, s *Session) error {
	raw, err := s.client.do(ctx, http.MethodPost, path("signing-keys"), options{})
	if err != nil {
		return err
	}
	var made signingKey
	if err := s.client.decode(raw, &made); err != nil {
		return err
	}
	return s.say(raw, "%s", made.ID)
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
