package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type keysCmd struct {
	List   listCmd[keyRow, projectFlag] `cmd:"" at:"keys" help:"List the API keys, without their values."`
	Show   objectCmd[keyRow, keyID]     `cmd:"" at:"keys/*" help:"Show an API key, without its value."`
	Create createKeyCmd                 `cmd:"" at:"POST keys" help:"Create an API key and print it; it cannot be shown again."`
	Revoke removeCmd[keyIDs]            `cmd:"" at:"DELETE keys/*" help:"Revoke API keys for good."`
}

// projectFlag selects the project of a command.
type projectFlag struct {
	Project string `placeholder:"NAME" help:"A project other than the key's; requires an admin key of project default."`
}

type keyID struct {
	identified
	projectFlag
}

type keyIDs struct {
	ids
	projectFlag
}

type keyRow api.Key

func (k keyRow) columns() []field {
	return []field{
		{"id", k.ID}, {"name", k.Name}, {"role", strings.TrimSpace(string(k.Role) + " " + k.Deployments)},
		{"project", k.Project}, {"prefix", k.Prefix}, {"created", k.CreatedAt}, {"last used", k.LastUsedAt},
		{"expires", k.ExpiresAt}, {"revoked", k.RevokedAt},
	}
}

type clientRow api.Client

func (c clientRow) columns() []field {
	return []field{
		{"project", c.Project}, {"role", c.Role}, {"actor", c.Actor}, {"key", c.KeyName}, {"expires", c.ExpiresAt},
		{"operator", c.Operator}, {"server", c.Version},
	}
}

type createKeyCmd struct {
	Name        string `arg:"" field:"name" help:"A name for the key, such as ci."`
	Role        string `enum:"admin,write,read,metadata,invoke,worker" required:"" help:"The key's permissions: ${enum}."`
	Deployments string `placeholder:"PATTERN" help:"With the role worker: the deployments to register, such as orders@*."`
	ExpiresAt   string `placeholder:"TIME" help:"When the key expires, in RFC 3339."`
	projectFlag
}

// Run creates the key. Only the key itself goes to standard output, so that it can be piped to a secret store.
func (createKeyCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	created, raw, err := sendFor[api.MadeKey](ctx, k, s)
	if err != nil {
		return err
	}
	s.note("created key %s of project %s with role %s; it cannot be shown again",
		created.ID, created.Project, created.Role)
	return s.printResult(raw, "%s", created.Key)
}

type projectsCmd struct {
	List    wholeListCmd[projectRow, none] `cmd:"" at:"projects" help:"List the projects."`
	Create  changeCmd[named]               `cmd:"" at:"PUT projects/*" says:"project $1 exists" help:"Create a project."`
	Limit   limitProjectCmd                `cmd:"" at:"PUT projects/*" help:"Limit what a project may start and store. Other limits stay as they are."`
	Encrypt changeCmd[named]               `cmd:"" at:"PUT projects/*?encryption=on" says:"payloads of project $1 are encrypted from now on" help:"Encrypt the payloads of a project that are written from now on."`
	Rotate  changeCmd[named]               `cmd:"" at:"PUT projects/*?encryption=rotate" says:"a new key encrypts the payloads of project $1" help:"Encrypt the payloads of a project by a new key from now on."`
	RunKeys changeCmd[named]               `cmd:"" at:"PUT projects/*?encryption=run-keys" says:"each new run of project $1 has a key of its own" help:"Encrypt each run of a project that starts from now on by a key of its own."`
	Rewrap  changeCmd[named]               `cmd:"" at:"PUT projects/*?encryption=rewrap" says:"the first master key wraps the keys of project $1" help:"Have the server's first master key wrap the keys of a project."`
	Shred   changeCmd[shredded]            `cmd:"" at:"PUT projects/*?encryption=shred" says:"the keys of project $1 are destroyed" help:"Destroy the keys of a project: nobody can read its payloads again."`
	Pause   changeCmd[named]               `cmd:"" at:"PUT projects/*?paused=true" says:"project $1 is paused" help:"Start and call nothing of a project until it is resumed."`
	Resume  changeCmd[named]               `cmd:"" at:"PUT projects/*?paused=false" says:"project $1 goes on" help:"Let a paused project go on."`

	kong.Plugins // those of the program that need a database
}

type shredded struct {
	named
	Yes bool `field:"-" required:"" help:"That nobody can ever read them again is what you want."`
}

type projectRow api.Project

func (p projectRow) columns() []field {
	l := orZero(p.Limits)
	return []field{
		{"name", p.Name}, {"created", p.CreatedAt}, {"paused", p.PausedAt}, {"encrypted", p.Encryption.Since},
		{"starts today", useOf(l.StartsToday, l.DailyStarts)}, {"bytes stored", useOf(l.StoredBytes, l.StorageBytes)},
	}
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

type limitProjectCmd struct {
	Name         string `arg:"" help:"The project's name. It is created if it does not exist."`
	DailyStarts  limit  `placeholder:"NUMBER" help:"The most runs to start in a day, in UTC, or none for no limit."`
	StorageBytes limit  `placeholder:"NUMBER" help:"The most bytes to store and yet start runs, or none for no limit."`

	MaxDepth       limit `placeholder:"NUMBER" help:"The most runs that may lead to a run, or none for the default of 32."`
	MaxDescendants limit `placeholder:"NUMBER" help:"The most open runs below one run, or none for the default of 10000."`
}

// Run sets the limits.
func (c limitProjectCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	if err != nil {
		return err
	}
	return s.change(ctx, http.MethodPut, r.path(), jsonBody{"limits": r.params}, "project %s is limited", c.Name)
}

type signingKeysCmd struct {
	List   wholeListCmd[signingKeyRow, none] `cmd:"" at:"signing-keys" help:"List the signing keys, without their secrets."`
	Create createSigningKeyCmd               `cmd:"" help:"Create a signing key and print its secret; it cannot be shown again."`
	Remove removeCmd[ids]                    `cmd:"" at:"DELETE signing-keys/*" help:"Delete signing keys for good."`
}

type signingKeyRow api.SigningKey

func (k signingKeyRow) columns() []field { return []field{{"id", k.ID}, {"created", k.CreatedAt}} }

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

type auditCmd struct {
	List listCmd[auditRow, auditFilter] `cmd:"" at:"audit" help:"List who did what, newest first."`
}

type auditFilter struct {
	Actor   string `xor:"of" placeholder:"ACTOR" help:"Only what this actor did, such as a key's ID."`
	Action  string `xor:"of" placeholder:"ACTION" help:"Only this action, such as key.create."`
	Subject string `xor:"of" placeholder:"SUBJECT" help:"Only what was done to this ID or name."`
	projectFlag
}

type auditRow api.Action

func (a auditRow) columns() []field {
	return []field{
		{"time", a.At}, {"actor", a.Actor}, {"address", a.Address}, {"action", a.Action}, {"subject", a.Subject},
		{"detail", strings.TrimPrefix(string(a.Detail), "{}")},
	}
}

type secretsCmd struct {
	List   wholeListCmd[secretRow, none] `cmd:"" at:"secrets" help:"List the secrets, without their values."`
	Set    setSecretCmd                  `cmd:"" help:"Create or replace a secret; reads its values from standard input, one per line."`
	Remove removeCmd[names]              `cmd:"" at:"DELETE secrets/*" help:"Delete secrets."`
}

type secretRow api.Secret

func (c secretRow) columns() []field {
	return []field{
		{"name", c.Name}, {"created", c.CreatedAt}, {"updated", c.UpdatedAt},
		{"sent to", c.Origins},
	}
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
