package overview

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/eventlog/stats"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 14, 2, 0, 0, time.UTC)
	before := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	day := 24 * time.Hour
	key := func(created, expires time.Duration) admin.Key {
		return admin.Key{CreatedAt: now.Add(-created), ExpiresAt: before(-expires)}
	}
	revoked := key(90*day, day)
	revoked.RevokedAt = before(day)
	failures := func(last, usual int64) Facts {
		return Facts{Failures: []stats.RecentFailures{{Workflow: "refund", LastHour: last, Usual: usual}}}
	}
	signing := func(ages ...time.Duration) (keys []admin.SigningKey) {
		for _, age := range ages {
			keys = append(keys, admin.SigningKey{CreatedAt: now.Add(-age)})
		}
		return keys
	}
	for name, tt := range map[string]struct {
		facts Facts
		want  []Item
	}{
		"nothing": {Facts{}, nil},
		"paused": {
			Facts{PausedAt: before(time.Hour)},
			[]Item{{Kind: Paused, Count: 1, Since: before(time.Hour)}},
		},
		"parked": {
			Facts{Parked: Tally{Count: 2, Since: before(time.Hour)}},
			[]Item{{Kind: Parked, Count: 2, Since: before(time.Hour)}},
		},
		"blocked and stranded": {
			Facts{Stranded: Tally{1, before(day), "wrun_2"}, Blocked: Tally{3, nil, "wrun_1"}},
			[]Item{{Kind: Blocked, Count: 3, Run: "wrun_1"}, {Kind: Stranded, Count: 1, Since: before(day), Run: "wrun_2"}},
		},
		"a deployment restarts":          {Facts{Unreached: []Unreached{{"shop", true, 5, minUnreached - 1}}}, nil},
		"a deployment is away":           {Facts{Unreached: []Unreached{{"shop", true, 5, minUnreached}}}, []Item{{Kind: Unreachable, Count: 5, Deployment: "shop"}}},
		"a deployment is not registered": {Facts{Unreached: []Unreached{{"shop", false, 5, 1}}}, []Item{{Kind: Missing, Count: 5, Deployment: "shop"}}},
		"few failures":                   {failures(9, 0), nil},
		"many failures, as usual":        {failures(29, 10), nil},
		"more failures than usual":       {failures(30, 10), []Item{{Kind: Failing, Count: 30, Workflow: "refund", Usual: 10}}},
		"failures for the first time":    {failures(10, 0), []Item{{Kind: Failing, Count: 10, Workflow: "refund"}}},
		"due":                            {Facts{Due: Tally{Count: 4, Since: before(time.Minute)}}, nil},
		"late": {
			Facts{Due: Tally{Count: 4, Since: before(61 * time.Second)}},
			[]Item{{Kind: Late, Count: 4, Since: before(61 * time.Second)}},
		},
		"keys": {
			Facts{Keys: []admin.Key{
				{CreatedAt: now}, revoked, key(90*day, -day), key(90*day, 8*day), key(day, day),
				key(90*day, 6*day), key(90*day, 2*day),
			}},
			[]Item{{Kind: KeyExpiring, Count: 2, Until: before(-2 * day)}},
		},
		"one signing key":       {Facts{SigningKeys: signing(90 * day)}, nil},
		"a rotation goes on":    {Facts{SigningKeys: signing(90*day, 6*day)}, nil},
		"a rotation was forgot": {Facts{SigningKeys: signing(90*day, 8*day)}, []Item{{Kind: TwoSigningKeys, Count: 2, Since: before(8 * day)}}},
		"all, in order": {
			Facts{
				PausedAt: before(day), Parked: Tally{Count: 1}, Blocked: Tally{Count: 1}, Stranded: Tally{Count: 1},
				Unreached: []Unreached{{"b", false, 1, 1}, {"a", true, 1, 9}}, Failures: failures(10, 0).Failures,
				Due: Tally{Count: 1, Since: before(day)}, Keys: []admin.Key{key(90*day, day)}, SigningKeys: signing(90*day, 8*day),
			},
			[]Item{
				{Kind: Paused, Count: 1, Since: before(day)},
				{Kind: Parked, Count: 1},
				{Kind: Blocked, Count: 1},
				{Kind: Stranded, Count: 1},
				{Kind: Unreachable, Count: 1, Deployment: "a"},
				{Kind: Missing, Count: 1, Deployment: "b"},
				{Kind: Failing, Count: 10, Workflow: "refund"},
				{Kind: Late, Count: 1, Since: before(day)},
				{Kind: KeyExpiring, Count: 1, Until: before(-day)},
				{Kind: TwoSigningKeys, Count: 2, Since: before(8 * day)},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.facts.Now = now
			if tt.want == nil {
				tt.want = []Item{}
			}
			if diff := cmp.Diff(tt.want, Decide(tt.facts)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
