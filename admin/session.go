package admin

import (
	"encoding/hex"
	"errors"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// ErrSessionNotFound means that there is no such session, that it has ended, or that it has not opened the project.
var ErrSessionNotFound = errors.New("session not found")

// SessionID is the SHA-256 of the cookie of a browser's session. Package access stores sessions.
type SessionID [32]byte

// String returns the ID in hexadecimal. It is no credential: the cookie cannot be derived from it.
func (id SessionID) String() string { return hex.EncodeToString(id[:]) }

// ParseSessionID parses the text of a session's ID. It fails with [ErrSessionNotFound].
func ParseSessionID(text string) (id SessionID, err error) {
	data, err := hex.DecodeString(text)
	if err != nil || len(data) != len(id) {
		return id, ErrSessionNotFound
	}
	return SessionID(data), nil
}

// ScanBytes implements [pgtype.BytesScanner].
func (id *SessionID) ScanBytes(data []byte) error {
	*id = SessionID(data)
	return nil
}

// OpenSession is a session that has opened a project.
type OpenSession struct {
	ID SessionID
	// KeyID, KeyName and Role are those of the key that opened the project; empty for the key in the server's environment.
	KeyID   KeyID
	KeyName string
	Role    Role
	// CreatedAt and UsedAt are when the session began and was last used, the latter accurate to about an hour.
	CreatedAt, UsedAt time.Time
}

// Client is what authenticated a request: a key, or a project that a browser's session has opened.
type Client struct {
	// Key is empty for a session, and Session and Project are zero for a key.
	Key     KeyID
	Session SessionID
	Project entities.Project
}
