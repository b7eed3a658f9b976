// Package signingtest tells tests which key a request is signed with.
//
// It signs the request again and compares. Functions verify with package sdk/signature, which is a module of its own:
// the server's module must not need it. Both agree on the vectors in sdk/signature/testdata.
package signingtest

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/queue/signing"
)

// Errors that Verify returns.
var (
	ErrUnsigned = errors.New("the request is not signed")
	ErrWrong    = errors.New("the request is not signed with the key")
)

var params = regexp.MustCompile(`created=(\d+);expires=\d+;keyid="([^"]*)"`)

// Verify returns an error unless the request with the body has a signature by the secret, as the API showed it.
func Verify(r *http.Request, body []byte, secret string) error {
	key, err := Parse(secret)
	if err != nil {
		return err
	}
	inputs := params.FindAllStringSubmatch(r.Header.Get("Signature-Input"), -1)
	if len(inputs) == 0 {
		return ErrUnsigned
	}
	for _, input := range inputs {
		created, err := strconv.ParseInt(input[1], 10, 64)
		if err != nil {
			return err
		}
		again := r.Clone(r.Context())
		for _, name := range []string{"Content-Digest", "Signature-Input", "Signature"} {
			again.Header.Del(name)
		}
		signing.Sign(again, body, []signing.Key{{ID: input[2], Secret: key}}, time.Unix(created, 0))
		_, want, _ := strings.Cut(again.Header.Get("Signature"), "=")
		if strings.Contains(r.Header.Get("Signature"), want) &&
			r.Header.Get("Content-Digest") == again.Header.Get("Content-Digest") {
			return nil
		}
	}
	return ErrWrong
}

// Parse returns the bytes of a secret as the API showed it.
func Parse(secret string) ([]byte, error) {
	text, ok := strings.CutPrefix(secret, "swsk_")
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) != 32 {
		return nil, fmt.Errorf("signing keys have the form swsk_ and 32 bytes in base64: %w", err)
	}
	return key, nil
}
