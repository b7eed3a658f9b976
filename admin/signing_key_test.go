package admin

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestSigningSecretsAreRedacted: however they are printed, except by Reveal.
func TestSigningSecretsAreRedacted(t *testing.T) {
	t.Parallel()
	key := SigningKeySecret{"skey_1", NewSigningSecret()}
	encoded, err := json.Marshal(key)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", key.Secret, "all", key)
	plain := []string{
		string(key.Secret), hex.EncodeToString(key.Secret), base64.StdEncoding.EncodeToString(key.Secret),
		strings.Trim(fmt.Sprintf("%d", []byte(key.Secret)), "[]"),
	}
	for _, text := range []string{
		string(encoded), log.String(), fmt.Sprint(key),
		fmt.Sprintf("%v %+v %#v %s %q %x %d", key, key, key, key.Secret, key.Secret, key.Secret, key.Secret),
	} {
		if !strings.Contains(text, redacted) {
			t.Errorf("got %s", text)
		}
		for _, p := range plain {
			if strings.Contains(text, p) {
				t.Errorf("got %s", text)
			}
		}
	}
	shown, ok := strings.CutPrefix(key.Secret.Reveal(), "swsk_")
	if secret, err := base64.StdEncoding.DecodeString(shown); !ok || err != nil || string(secret) != string(key.Secret) {
		t.Errorf("revealed: %s, %v", shown, err)
	}
	if len(key.Secret) != 32 || string(NewSigningSecret()) == string(key.Secret) {
		t.Error("the secret is not 256 random bits")
	}
}
