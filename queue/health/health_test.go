package health

import (
	"encoding/json"
	"testing"
	"time"
)

// TestStateAfterProbes folds probes, of which "f" fails and "s" succeeds, with failAfter 2, recoverAfter 2 and a trial
// every a minute. The state is unhealthy after those in capitals.
func TestStateAfterProbes(t *testing.T) {
	t.Parallel()
	settings := Settings{Path: "/", FailAfter: 2, RecoverAfter: 2, TrialEvery: Duration(time.Minute)}.WithDefaults()
	for _, probes := range []string{"s", "f", "fsf", "fF", "fFFF", "fFSs", "fFSFSs", "fFSsfF"} {
		at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
		var s State
		var since time.Time
		for i, p := range probes {
			failure := ""
			if p == 'f' || p == 'F' {
				failure = "503"
			}
			at = at.Add(time.Second)
			before := s.UnhealthySince
			s = s.After(settings, failure, at)
			unhealthy := p == 'F' || p == 'S'
			if unhealthy && before == nil {
				since = at
			}
			if (s.UnhealthySince != nil) != unhealthy || (s.TrialAt != nil) != unhealthy || s.Error != failure ||
				!s.ProbedAt.Equal(at) {
				t.Errorf("%s: after probe %d the state is %+v", probes, i+1, s)
			}
			if unhealthy && (!s.UnhealthySince.Equal(since) || !s.TrialAt.Equal(since.Add(time.Minute))) {
				t.Errorf("%s: after probe %d it is unhealthy since %v, tried at %v", probes, i+1, s.UnhealthySince, s.TrialAt)
			}
		}
	}
}

func TestSettingsAreValidated(t *testing.T) {
	t.Parallel()
	for text, valid := range map[string]bool{
		`{"path":"/healthz"}`:                            true,
		`{"path":"/a?b=c","every":"1s","timeout":"30s"}`: true,
		`{"path":"/","failAfter":100,"recoverAfter":1}`:  true,
		`{"path":"healthz"}`:                             false,
		`{"path":"//elsewhere.example/healthz"}`:         false,
		`{"path":"/a#b"}`:                                false,
		`{"path":"/","every":"999ms"}`:                   false,
		`{"path":"/","timeout":"31s"}`:                   false,
		`{"path":"/","trialEvery":"25h"}`:                false,
		`{"path":"/","failAfter":101}`:                   false,
		`{"path":"/","recoverAfter":-1}`:                 false,
		`{"path":"/","trialEvery":"-1s"}`:                false,
	} {
		var s Settings
		err := json.Unmarshal([]byte(text), &s)
		if err == nil {
			err = s.WithDefaults().Validate()
		}
		if (err == nil) != valid {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

// TestPathIsAtTheHost of the deployment, wherever its functions are.
func TestPathIsAtTheHost(t *testing.T) {
	t.Parallel()
	got, err := Settings{Path: "/healthz?deep=1"}.At("http://app.example:3000/functions/order")
	if err != nil || got != "http://app.example:3000/healthz?deep=1" {
		t.Errorf("got %s, %v", got, err)
	}
}
