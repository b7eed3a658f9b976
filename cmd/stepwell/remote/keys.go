package remote

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"
)

type keysCmd struct {
	List   listKeysCmd  `cmd:"" help:"List the API keys, without their values."`
	Show   showKeyCmd   `cmd:"" help:"Show an API key, without its value."`
	Create createKeyCmd `cmd:"" help:"Make an API key, and print it; nobody can see it again."`
	Revoke revokeKeyCmd `cmd:"" help:"Revoke API keys for good."`
}

type apiKey struct {
	ID, Name, Role, Project, Prefix, Key string

	CreatedAt, ExpiresAt, RevokedAt, LastUsedAt time.Time
}

var keyColumns = []column[apiKey]{
	{"ID", func(_ *Session, k apiKey) string { return k.ID }},
	{"NAME", func(_ *Session, k apiKey) string { return k.Name }},
	{"ROLE", func(_ *Session, k apiKey) string { return k.Role }},
	{"PROJECT", func(_ *Session, k apiKey) string { return k.Project }},
	{"BEGINS WITH", func(_ *Session, k apiKey) string { return k.Prefix }},
	{"CREATED", func(s *Session, k apiKey) string { return s.when(k.CreatedAt) }},
	{"LAST USED", func(s *Session, k apiKey) string { return s.when(k.LastUsedAt) }},
	{"EXPIRES", func(s *Session, k apiKey) string { return s.when(k.ExpiresAt) }},
	{"REVOKED", func(s *Session, k apiKey) string { return s.when(k.RevokedAt) }},
}

// inProject is which project a command is about.
type inProject struct {
	Project string `placeholder:"NAME" help:"The project, if not that of the key in use; for admin keys of default."`
}

func (p inProject) query() url.Values {
	query := url.Values{}
	set(query, "project", p.Project)
	return query
}

// on is a path with the project.
func (p inProject) on(path string) string {
	if query := p.query(); len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

type listKeysCmd struct {
	inProject
	paging
	ordering
}

// Run lists the keys.
func (c listKeysCmd) Run(ctx context.Context, s *Session) error {
	query := c.query()
	c.into(query)
	return list(ctx, s, path("keys"), query, c.paging, keyColumns)
}

type showKeyCmd struct {
	ID string `arg:"" help:"The key's ID."`
	inProject
}

// Run prints the key.
func (c showKeyCmd) Run(ctx context.Context, s *Session) error {
	var k apiKey
	raw, err := s.client.get(ctx, path("keys", c.ID), c.query(), &k)
	if err != nil || s.json {
		return errors.Join(err, s.printJSON(raw))
	}
	return s.fields([]field{
		{"key", k.ID},
		{"name", clean(k.Name)},
		{"role", k.Role},
		{"project", clean(k.Project)},
		{"begins with", clean(k.Prefix)},
		{"created", s.exactly(k.CreatedAt)},
		{"last used", s.exactly(k.LastUsedAt)},
		{"expires", s.exactly(k.ExpiresAt)},
		{"revoked", s.exactly(k.RevokedAt)},
	})
}

type createKeyCmd struct {
	Name      string `arg:"" help:"What the key is for, such as ci."`
	Role      string `enum:"admin,write,read,metadata,invoke" required:"" help:"What it may do: ${enum}."`
	ExpiresAt string `placeholder:"TIME" help:"From when on it lets nobody in, in RFC 3339."`
	inProject
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
	s.note("key %s of project %s, role %s; it is not shown again", made.ID, made.Project, made.Role)
	return s.say(raw, "%s", made.Key)
}

type revokeKeyCmd struct {
	IDs []string `arg:"" name:"id" help:"The keys' IDs."`
	inProject
}

// Run revokes the keys.
func (c revokeKeyCmd) Run(ctx context.Context, s *Session) error {
	return each(c.IDs, func(id string) error {
		_, err := s.client.do(ctx, http.MethodDelete, c.on(path("keys", id)), nil)
		return err
	})
}

type projectsCmd struct {
	List   listProjectsCmd  `cmd:"" help:"List the projects."`
	Create createProjectCmd `cmd:"" help:"Create a project."`
}

type project struct {
	Name      string
	CreatedAt time.Time
}

var projectColumns = []column[project]{
	{"NAME", func(_ *Session, p project) string { return p.Name }},
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
	raw, err := s.client.do(ctx, http.MethodPut, path("projects", c.Name), nil)
	if err != nil {
		return err
	}
	return s.say(raw, "project %s is there", c.Name)
}
