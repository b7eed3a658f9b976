// Package health has the health of deployments: how it is probed, and what follows from a probe. [State.After] is pure.
package health

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// Bounds of the settings.
const (
	minEvery   = time.Second
	maxEvery   = time.Hour
	minTimeout = 100 * time.Millisecond
	maxTimeout = 30 * time.Second
	maxInARow  = 100
	minTrial   = time.Second
	maxTrial   = 24 * time.Hour
	maxPath    = 1024 // bytes
)

// Settings say how a deployment is probed. Fields that are zero have their defaults.
type Settings struct {
	// Path is what is read at the host of the deployment, such as "/healthz". Each status 2xx is a success.
	Path string `json:"path"`
	// Every is the pause between two probes, 30s by default, and Timeout how long one may take, 3s by default.
	Every   Duration `json:"every"`
	Timeout Duration `json:"timeout"`
	// FailAfter is after how many failures in a row the deployment is unhealthy, 3 by default, and RecoverAfter after how
	// many successes it is healthy again, 1 by default.
	FailAfter    int `json:"failAfter"`
	RecoverAfter int `json:"recoverAfter"`
	// TrialEvery is how often one call is made while the deployment is unhealthy, as a trial; 10m by default.
	TrialEvery Duration `json:"trialEvery"`
}

// Duration is a duration with the JSON form of the API, such as "30s".
type Duration time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf(`%q is not a duration like "30s" or "10m"`, text)
	}
	*d = Duration(v)
	return nil
}

// WithDefaults returns the settings with the defaults of those that are not set.
func (s Settings) WithDefaults() Settings {
	s.Every, s.Timeout = cmp.Or(s.Every, Duration(30*time.Second)), cmp.Or(s.Timeout, Duration(3*time.Second))
	s.FailAfter, s.RecoverAfter = cmp.Or(s.FailAfter, 3), cmp.Or(s.RecoverAfter, 1)
	s.TrialEvery = cmp.Or(s.TrialEvery, Duration(10*time.Minute))
	return s
}

// Validate validates settings that have their defaults. It fails with [entities.ErrInvalid].
func (s Settings) Validate() error {
	for _, d := range []struct {
		name        string
		value       Duration
		least, most time.Duration
	}{
		{"every", s.Every, minEvery, maxEvery},
		{"timeout", s.Timeout, minTimeout, maxTimeout},
		{"trialEvery", s.TrialEvery, minTrial, maxTrial},
	} {
		if v := time.Duration(d.value); v < d.least || v > d.most {
			return entities.Invalid("health: %s %s is not between %s and %s", d.name, v, d.least, d.most)
		}
	}
	for name, n := range map[string]int{"failAfter": s.FailAfter, "recoverAfter": s.RecoverAfter} {
		if n < 1 || n > maxInARow {
			return entities.Invalid("health: %s %d is not between 1 and %d", name, n, maxInARow)
		}
	}
	u, err := url.Parse(s.Path)
	if err != nil || !strings.HasPrefix(s.Path, "/") || u.Host != "" || u.Fragment != "" || len(s.Path) > maxPath {
		return entities.Invalid(`health: path %q is not a path like "/healthz"`, s.Path)
	}
	return nil
}

// At returns the URL that is probed of a deployment at the address.
func (s Settings) At(address string) (string, error) {
	base, err := url.Parse(address)
	if err != nil {
		return "", entities.Invalid("%v", err)
	}
	probed, err := base.Parse(s.Path)
	if err != nil {
		return "", entities.Invalid("%v", err)
	}
	return probed.String(), nil
}

// State is what the probes of a deployment have found out. Times are from the database's clock.
type State struct {
	// ProbedAt is when it was probed last; nil if it never was.
	ProbedAt *time.Time
	// Failures and Successes are how many of the last probes failed or succeeded one after another, and Error is why the
	// last one failed; empty if it succeeded.
	Failures  int    `db:"probe_failures"`
	Successes int    `db:"probe_successes"`
	Error     string `db:"probe_error"`
	// UnhealthySince is set while it is unhealthy. TrialAt is when the next trial call is made then.
	UnhealthySince *time.Time
	TrialAt        *time.Time
}

// After returns the state after a probe at the time, which failed for a reason, or succeeded if that is empty.
func (s State) After(settings Settings, failure string, at time.Time) State {
	s.ProbedAt, s.Error = &at, failure
	if failure == "" {
		s.Failures, s.Successes = 0, s.Successes+1
		if s.Successes >= settings.RecoverAfter {
			s.UnhealthySince, s.TrialAt = nil, nil
		}
		return s
	}
	s.Failures, s.Successes = s.Failures+1, 0
	if s.UnhealthySince == nil && s.Failures >= settings.FailAfter {
		trial := at.Add(time.Duration(settings.TrialEvery))
		s.UnhealthySince, s.TrialAt = &at, &trial
	}
	return s
}
