package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

func TestValidateSecret(t *testing.T) {
	t.Parallel()
	long := SecretValue(strings.Repeat("x", maxSecretLength+1))
	for i, tt := range []struct {
		name   string
		values []SecretValue
		valid  bool
	}{
		{"s", []SecretValue{"v"}, true},
		{"s", []SecretValue{long[1:]}, true},
		{"s", []SecretValue{long}, false},
		{"s", nil, false},
		{"s", make([]SecretValue, 11), false},
		{"s", []SecretValue{"v", ""}, false},
		{"s", []SecretValue{"v\x00"}, false},
		{"", []SecretValue{"v"}, false},
		{"a b", []SecretValue{"v"}, false},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			err := validateSecret(tt.name, tt.values)
			if tt.valid != (err == nil) || err != nil && !errors.Is(err, entities.ErrInvalid) {
				t.Errorf("got %v, want valid: %v", err, tt.valid)
			}
			if err != nil && strings.Contains(err.Error(), "xxx") {
				t.Errorf("the error repeats the value: %.60s", err)
			}
		})
	}
}

// TestValidateOrigins: an origin is as [entities.Origin] returns it.
func TestValidateOrigins(t *testing.T) {
	t.Parallel()
	for origin, valid := range map[string]bool{
		"https://mail.example.com": true, "http://127.0.0.1:80": true, "https://Mail.example.com": false,
		"https://mail.example.com/": false, "mail.example.com": false, "https://maİl.example.com": false,
		"https://ma%C4%B0l.example.com": false,
	} {
		if err := validateOrigins([]string{origin}); valid != (err == nil) || err != nil && !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("%s: got %v, want valid: %v", origin, err, valid)
		}
	}
}

// TestSecretValuesAreRedacted: however they are printed.
func TestSecretValuesAreRedacted(t *testing.T) {
	t.Parallel()
	v := struct{ Values []SecretValue }{[]SecretValue{"hunter2"}}
	encoded, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v.Values[0], "all", v)
	for _, text := range []string{
		string(encoded), log.String(), fmt.Sprint(v), fmt.Sprintf("%v %+v %#v %s %q %d %x", v, v, v, v.Values, v.Values[0], v.Values[0], v.Values[0]),
	} {
		if strings.Contains(text, "hunter2") || !strings.Contains(text, redacted) {
			t.Errorf("got %s", text)
		}
	}
}
