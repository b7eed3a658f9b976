package token_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/token"
)

func TestCallTokens(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	key, call := token.Key("a key of all servers"), token.Call{Project: "shop", RunID: "wrun_1", Invocation: "rh_1"}
	text := key.SignCall("", call, now.Add(time.Hour))
	other := key.SignCall("", token.Call{Project: "shop", RunID: "wrun_2", Invocation: "rh_1"}, now.Add(time.Hour))
	cut := strings.LastIndex(text[:len(text)-43], "_")
	for name, tt := range map[string]struct {
		key  token.Key
		text string
		at   time.Time
		want bool
	}{
		"valid":              {key, text, now, true},
		"slow clock":         {key, text, now.Add(-time.Hour), true},
		"almost expired":     {key, text, now.Add(time.Hour - time.Second), true},
		"expired":            {key, text, now.Add(time.Hour), false},
		"later expiry":       {key, strings.Replace(text, "_18", "_19", 1), now, false},
		"claims of another":  {key, other[:cut] + text[cut:], now, false},
		"cut":                {key, text[:len(text)-1], now, false},
		"longer":             {key, text + "A", now, false},
		"without MAC":        {key, text[:cut], now, false},
		"empty MAC":          {key, text[:cut+1], now, false},
		"empty":              {key, "", now, false},
		"prefix only":        {key, token.CallPrefix, now, false},
		"another prefix":     {key, key.Sign("drain_", "shop/wrun_1/rh_1", now.Add(time.Hour)), now, false},
		"other claims":       {key, key.Sign(token.CallPrefix, "shop/wrun_1", now.Add(time.Hour)), now, false},
		"without claims":     {key, key.Sign(token.CallPrefix, "", now.Add(time.Hour)), now, false},
		"key of others":      {token.Key("another key"), text, now, false},
		"server without key": {nil, token.Key(nil).SignCall("", call, now.Add(time.Hour)), now, false},
	} {
		got, ok := tt.key.VerifyCall(tt.text, tt.at)
		if ok != tt.want || ok && got != call || !ok && got != (token.Call{}) {
			t.Errorf("%s: got %+v, %v", name, got, ok)
		}
	}
}

func TestCallTokensNameTheirCell(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	key, call := token.Key("a key of all servers"), token.Call{Project: "shop", RunID: "wrun_1", Invocation: "rh_1"}
	text := key.SignCall("eu1", call, now.Add(time.Hour))
	if got, ok := key.VerifyCall(text, now); !ok || got != call || !strings.HasPrefix(text, "swct_eu1_18") {
		t.Errorf("%.20s… is of %+v, %v", text, got, ok)
	}
}

// TestOnlySignedTokensAreValid changes one character of a token.
func TestOnlySignedTokensAreValid(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	rapid.Check(t, func(t *rapid.T) {
		key := token.Key(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "key"))
		call := token.Call{
			Project: "p", RunID: entities.RunID(rapid.StringMatching(`[0-9A-Za-z_.-]{1,40}`).Draw(t, "run")), Invocation: "rh",
		}
		text := key.SignCall("", call, now.Add(time.Second))
		if got, ok := key.VerifyCall(text, now); !ok || got != call {
			t.Fatalf("got %+v, %v; want %+v", got, ok, call)
		}
		i := rapid.IntRange(0, len(text)-2).Draw(t, "i") // the last character has unused bits
		c := rapid.SampledFrom([]byte("0aZ_.-/")).Draw(t, "c")
		if text[i] == c {
			return
		}
		if _, ok := key.VerifyCall(text[:i]+string(c)+text[i+1:], now); ok {
			t.Fatalf("character %d of %s may be %q too", i, text, c)
		}
	})
}
