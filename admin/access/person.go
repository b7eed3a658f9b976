package access

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// PersonTime is how long somebody may use the dashboard after signing in by the identity provider. What the provider
// changes about the person meanwhile takes effect at the next sign-in.
const PersonTime = 12 * time.Hour

// Person is somebody whom the identity provider knows.
type Person struct {
	// Subject is the provider and what it calls the person, unique for ever.
	Subject string
	// Name is what people know the person by, such as an address.
	Name string
	// Grants is the role in each project that the person may open.
	Grants map[entities.Project]admin.Role
}

// Attempt is what ties the answer of an identity provider to the browser that asked.
type Attempt struct {
	// State comes back with the browser, Nonce in the ID token, and the provider has the hash of Verifier.
	State, Nonce, Verifier string
}

// NewAttempt returns an attempt that nobody can guess.
func NewAttempt() Attempt { return Attempt{randomText(), randomText(), randomText()} }

// Admit gives a person who has just signed in a key for each grant whose project exists, and ends those in other
// projects, also for sessions that are open. It returns what the keys open, by project. A key that was revoked stays
// so: the person gets another one.
func (s *Keys) Admit(ctx context.Context, p Person) (opened []Opened, err error) {
	now := s.now().UTC().Truncate(time.Millisecond)
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		projects, err := pg.CollectColumn[entities.Project](tx.Query(ctx,
			`SELECT name FROM projects WHERE name = ANY($1) ORDER BY name`, slices.Collect(maps.Keys(p.Grants))))
		if err != nil {
			return err
		}
		opened = nil // this may be another attempt
		var keys, audit pgx.Batch
		// Sign-ins of one person follow each other here, so that they lock the keys in one order.
		keys.Queue(`SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, "person "+p.Subject)
		keys.Queue(`UPDATE api_keys SET expires_at = $3
			WHERE person = $1 AND project <> ALL($2) AND revoked_at IS NULL AND expires_at > $3`, p.Subject, projects, now)
		put := make([]*admin.Key, len(projects))
		for i, project := range projects {
			putPersonKey(&keys, p, project, now, &put[i])
		}
		if err := tx.SendBatch(ctx, &keys).Close(); err != nil {
			return err
		}
		for _, k := range put {
			opened = append(opened, Opened{k.Project, k})
			by := admin.WithSource(ctx, admin.Source{Actor: admin.Actor(k.ID), Address: admin.SourceOf(ctx).Address})
			admin.InsertAction(by, &audit, k.Project, admin.ActionSessionBegin, string(k.ID),
				map[string]any{"name": k.Name, "role": k.Role})
		}
		return tx.SendBatch(ctx, &audit).Close()
	})
	if err != nil {
		return nil, fmt.Errorf("admit person: %w", err)
	}
	return opened, nil
}

// putPersonKey queues the insertion of a person's key in a project, or its renewal.
func putPersonKey(b *pgx.Batch, p Person, project entities.Project, now time.Time, into **admin.Key) {
	var hash [32]byte
	_, _ = rand.Read(hash[:]) // it never fails
	admin.PutPersonKey(b, admin.Key{
		ID: admin.NewKeyID(now), Project: project, Name: p.Name, Role: p.Grants[project], Person: p.Subject,
		CreatedAt: now, ExpiresAt: new(now.Add(PersonTime)),
	}, hash, into)
}
