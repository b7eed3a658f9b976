// Package token makes and verifies tokens: texts by which a server recognizes what it has allowed somebody for a while.
package token

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// Key signs tokens. All servers that accept each other's tokens have the same one. An empty key accepts no token.
type Key []byte

// A token is
//
//	PREFIX EXPIRY [ "." CLAIMS ] "_" MAC
//
// EXPIRY is in seconds since 1970. CLAIMS is any text in base64url. MAC is an HMAC-SHA-256 of EXPIRY and CLAIMS in
// base64url. A key signs tokens with one prefix only.

// encoding has no character ".".
var encoding = base64.RawURLEncoding

// macLength is the length of a MAC in a token.
var macLength = encoding.EncodedLen(sha256.Size)

// Sign returns a token with the claims, which is valid until it expires.
func (k Key) Sign(prefix, claims string, expires time.Time) string {
	body := strconv.FormatInt(expires.Unix(), 10)
	if claims != "" {
		body += "." + encoding.EncodeToString([]byte(claims))
	}
	return prefix + body + "_" + k.mac(body)
}

func (k Key) mac(body string) string {
	mac := hmac.New(sha256.New, k)
	mac.Write([]byte(body))
	return encoding.EncodeToString(mac.Sum(nil))
}

// Verify returns the claims of a token, and reports whether the token is valid.
func (k Key) Verify(prefix, text string, now time.Time) (claims string, ok bool) {
	text, ok = strings.CutPrefix(text, prefix)
	end := len(text) - macLength - len("_")
	if !ok || end < 0 || text[end] != '_' || len(k) == 0 {
		return "", false
	}
	body, mac := text[:end], text[end+1:]
	if !hmac.Equal([]byte(mac), []byte(k.mac(body))) {
		return "", false
	}
	expiry, encoded, _ := strings.Cut(body, ".")
	seconds, err := strconv.ParseInt(expiry, 10, 64)
	if err != nil || !now.Before(time.Unix(seconds, 0)) {
		return "", false
	}
	decoded, err := encoding.DecodeString(encoded)
	return string(decoded), err == nil
}

// CallPrefix starts the tokens of calls.
const CallPrefix = "swct_"

// Call identifies the call of a function for which a token was made.
type Call struct {
	Project entities.Project
	RunID   entities.RunID
	// Invocation is the lease of the call.
	Invocation string
}

// callbackPrefix starts what the token of a callback has instead of the lease of an invocation. No lease begins so.
const callbackPrefix = "callback:"

// Callback returns the call that stands for sending the result of a step.
func Callback(p entities.Project, runID entities.RunID, step entities.StepID) Call {
	return Call{p, runID, callbackPrefix + string(step)}
}

// Step returns the step whose result the token is for. It reports false for the token of a call.
func (c Call) Step() (entities.StepID, bool) {
	id, ok := strings.CutPrefix(c.Invocation, callbackPrefix)
	return entities.StepID(id), ok
}

// callParts is the number of parts in the claims of a call. No part has a slash.
const callParts = 3

// SignCall returns the token of a call that a server of the cell makes.
func (k Key) SignCall(cell entities.Cell, c Call, expires time.Time) string {
	return k.Sign(cell.Prefix(CallPrefix), string(c.Project)+"/"+string(c.RunID)+"/"+c.Invocation, expires)
}

// VerifyCall returns the call of a token, and reports whether the token is valid. It does not compare cells.
func (k Key) VerifyCall(text string, now time.Time) (Call, bool) {
	cell, _ := entities.CutCell(CallPrefix, text)
	claims, ok := k.Verify(cell.Prefix(CallPrefix), text, now)
	parts := strings.Split(claims, "/")
	if !ok || len(parts) != callParts {
		return Call{}, false
	}
	return Call{entities.Project(parts[0]), entities.RunID(parts[1]), parts[2]}, true
}

// ClaimedProject returns the project of the call of a token, which may be anything: it is not verified. It is empty if
// the token has none.
func ClaimedProject(text string) entities.Project {
	_, text = entities.CutCell(CallPrefix, text)
	_, encoded, _ := strings.Cut(strings.TrimPrefix(text, CallPrefix), ".")
	claims, err := encoding.DecodeString(encoded[:max(0, len(encoded)-macLength-len("_"))])
	project, _, ok := strings.Cut(string(claims), "/")
	if err != nil || !ok {
		return ""
	}
	return entities.Project(project)
}
