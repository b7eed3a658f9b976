package overview

import (
	"slices"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/stats"
)

// Kind is a kind of what needs attention. Clients make sentences from kinds.
type Kind string

// The kinds, ordered by how much they need a person.
const (
	// Paused: nothing of the project starts or is called.
	Paused Kind = "project_paused"
	// PartsPaused: runs, workflows or deployments are paused.
	PartsPaused Kind = "paused"
	// Parked: messages failed so often that they are not delivered again until somebody retries them.
	Parked Kind = "messages_parked"
	// Blocked: functions refuse to go on with runs.
	Blocked Kind = "runs_blocked"
	// Stranded: nothing moves some runs, and waking them has not helped.
	Stranded Kind = "runs_stranded"
	// Unreachable: calls do not reach a deployment.
	Unreachable Kind = "deployment_unreachable"
	// Missing: messages are for a deployment that is not registered.
	Missing Kind = "deployment_missing"
	// Failing: more runs of a workflow fail than usual.
	Failing Kind = "workflow_failing"
	// Late: messages that are due are not delivered.
	Late Kind = "queue_late"
	// KeyExpiring: an API key is about to expire.
	KeyExpiring Kind = "key_expiring"
	// TwoSigningKeys: a rotation of signing keys was begun and not finished.
	TwoSigningKeys Kind = "two_signing_keys"
)

// Kinds returns all kinds in their order.
func Kinds() []Kind {
	return []Kind{
		Paused, PartsPaused, Parked, Blocked, Stranded, Unreachable, Missing, Failing, Late, KeyExpiring, TwoSigningKeys,
	}
}

// Item is something that needs attention.
type Item struct {
	Kind Kind
	// Count is the number of messages, runs or keys, up to [MaxCount]; there, it means that many or more.
	Count int64
	// Since is when it began; nil if that is not known. Until is when a key expires.
	Since, Until *time.Time
	// Deployment, Workflow and Run say where; empty if the kind has none. Run is one of the runs.
	Deployment, Workflow string
	Run                  entities.RunID
	// Usual is the number of failures in an hour that is usual for the time of the day.
	Usual int64
}

const (
	// strandedFor is how long a run must have been stranded: the sweeper wakes most runs before.
	strandedFor = 15 * time.Minute
	// minUnreached is how many calls of a message must have failed to reach its deployment: an app that restarts is no
	// trouble.
	minUnreached = 4
	// lateAfter is the age of a due message from which on the queue is late.
	lateAfter = time.Minute
	// A workflow fails too often with at least minFailures in an hour, failureFactor times as many as usual.
	minFailures   = 10
	failureFactor = 3
	// A key that was made for at least longLived is about to expire from expiresWithin before.
	expiresWithin = 7 * 24 * time.Hour
	longLived     = 14 * 24 * time.Hour
	// rotationTime is how long a project may have two signing keys.
	rotationTime = 7 * 24 * time.Hour
)

// Facts are what [Decide] decides by.
type Facts struct {
	Now time.Time
	// PausedAt is nil unless the project is paused.
	PausedAt *time.Time
	// Pauses are those of runs, workflows and deployments. Parked, Blocked and Stranded have up to [MaxCount] messages or
	// runs.
	Pauses, Parked, Blocked, Stranded Tally
	// Due are the messages that are due and not being delivered.
	Due Tally
	// Unreached are the deployments that calls do not reach.
	Unreached []Unreached
	Failures  []stats.RecentFailures
	Keys      []admin.Key
	// SigningKeys are ordered by age, the oldest first.
	SigningKeys []admin.SigningKey
}

// Tally counts things and says since when there are any.
type Tally struct {
	Count int64
	Since *time.Time
	// Run is one of the runs; empty if there is none.
	Run entities.RunID
}

// Unreached are the messages for a deployment that have not reached it.
type Unreached struct {
	Deployment string
	Registered bool
	Messages   int64
	// Calls is the most calls that have failed in a row for one of the messages.
	Calls int
}

// Decide returns what needs attention, ordered by kind.
func Decide(f Facts) []Item {
	items := []Item{}
	add := func(i Item) { items = append(items, i) }
	if f.PausedAt != nil {
		add(Item{Kind: Paused, Count: 1, Since: f.PausedAt})
	}
	for kind, t := range map[Kind]Tally{
		PartsPaused: f.Pauses, Parked: f.Parked, Blocked: f.Blocked, Stranded: f.Stranded,
	} {
		if t.Count > 0 {
			add(Item{Kind: kind, Count: t.Count, Since: t.Since, Run: t.Run})
		}
	}
	for _, u := range f.Unreached {
		switch {
		case !u.Registered:
			add(Item{Kind: Missing, Count: u.Messages, Deployment: u.Deployment})
		case u.Calls >= minUnreached:
			add(Item{Kind: Unreachable, Count: u.Messages, Deployment: u.Deployment})
		}
	}
	for _, w := range f.Failures {
		if w.LastHour >= minFailures && w.LastHour >= failureFactor*w.Usual {
			add(Item{Kind: Failing, Count: w.LastHour, Workflow: w.Workflow, Usual: w.Usual})
		}
	}
	if f.Due.Count > 0 && f.Now.Sub(*f.Due.Since) > lateAfter {
		add(Item{Kind: Late, Count: f.Due.Count, Since: f.Due.Since})
	}
	if i := expiring(f); i.Count > 0 {
		add(i)
	}
	if n := len(f.SigningKeys); n > 1 && f.Now.Sub(f.SigningKeys[n-1].CreatedAt) > rotationTime {
		add(Item{Kind: TwoSigningKeys, Count: int64(n), Since: &f.SigningKeys[n-1].CreatedAt})
	}
	rank := func(k Kind) int { return slices.Index(Kinds(), k) }
	slices.SortStableFunc(items, func(a, b Item) int { return rank(a.Kind) - rank(b.Kind) })
	return items
}

// expiring counts the keys that are about to expire, with the time of the first one.
func expiring(f Facts) Item {
	i := Item{Kind: KeyExpiring}
	for _, k := range f.Keys {
		if k.Revoked() || k.ExpiresAt == nil || k.Expired(f.Now) ||
			k.ExpiresAt.Sub(k.CreatedAt) < longLived || k.ExpiresAt.Sub(f.Now) > expiresWithin {
			continue
		}
		i.Count++
		if i.Until == nil || k.ExpiresAt.Before(*i.Until) {
			i.Until = k.ExpiresAt
		}
	}
	return i
}
