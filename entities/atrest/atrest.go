// Package atrest is the seam between payloads, the bytes of users, and what the database has of them. Everything above
// it handles payloads as users sent them. What stores them otherwise, encrypted for example, is a [Codec], which
// package pg installs into the connections of a pool (pg.InstallPayloads). So no code that has SQL can forget it:
//
//   - A statement gets a payload as an argument of the type [Payload], or [Text] for a column of type text, in lists,
//     too. The driver asks the codec for the bytes when it encodes the statement.
//   - A type into which rows are scanned says by [Row] where it has payloads. The functions of package pg that collect
//     rows, and package eventlog/read, have the codec open these once all rows are read.
//   - What copies what is stored as it is, as exports and imports do, passes it as a []byte, and reads by pg.Stored.
//
// Encoding happens while a transaction may hold locks, so a codec does no I/O then. What needs time, such as asking for
// a key, happens in Codec.Prepare: before an append begins (eventlog.WithPayloads), before a message is sent, and
// before a connection is taken for the work of a project (package share).
//
// A payload begins with [Magic] in the database if and only if a codec has made it; [Form] is the byte after that. The
// few payloads of users that begin so are stored in the form [Plain].
package atrest

import (
	"database/sql/driver"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Magic begins what is no payload as its user sent it. It is neither text nor any encoding of the Workflow SDK.
const Magic = "\x00\xffsw"

// textMark begins a text that is [Magic] and what follows in base64. No JSON begins so.
const textMark = "~"

// SealedOverhead is how many bytes a payload in the form [Sealed] is longer than it was.
const SealedOverhead = 62

// Form is the byte after [Magic]: what has been done to the payload.
type Form byte

// The forms.
const (
	// Plain is a payload that begins with [Magic] by itself; it follows.
	Plain Form = iota
	// Sealed is an encrypted payload: see package admin/encryption.
	Sealed
	// Reference says where the payload is, outside of the database: see package eventlog/blob.
	Reference
	// Embedded has in it what a Reference would refer to: exports have no references.
	Embedded
)

var (
	// ErrUnavailable means that something outside of the database that payloads need cannot be had now, such as a key. The
	// same may succeed later.
	ErrUnavailable = errors.New("the payloads are not available")
	// ErrAltered means that what is stored was changed, or moved from another place.
	ErrAltered = errors.New("a stored payload was changed, or moved from elsewhere")
	// ErrShredded means that the key of a payload is destroyed, so that nothing can go on from it.
	ErrShredded = errors.New("the key of the run's payloads is destroyed, so that nobody can read them any more")
	// ErrUnreadable means that a payload is stored in a form that this server cannot read.
	ErrUnreadable = errors.New("a payload is stored in a form that this server cannot read")
)

// Place says where in the database a payload is. What is stored at one place is not readable at another.
type Place struct {
	// Kind is the table or column: one of the constants.
	Kind Kind
	// Owner identifies what has the payload among all projects: the ID of a run, for example.
	Owner string
	// Seq is the position in what the owner has; 0 if that has one payload.
	Seq int64
}

// Kind is the kind of a [Place].
type Kind string

// The kinds. Owners are runs, and positions those of events, unless it is said otherwise.
const (
	Event Kind = "event"
	Extra Kind = "extra"
	// Value is of the store of a run; the position is that of the event that wrote it.
	Value Kind = "value"
	// Chunk is of a stream, whose project and name are the owner; chunks of one stream have no positions.
	Chunk Kind = "chunk"
	// Signal, Message, Schedule and Trigger have their own IDs as owner.
	Signal   Kind = "signal"
	Message  Kind = "message"
	Schedule Kind = "schedule"
	Trigger  Kind = "trigger"
	// Progress is what a step has said about how far it is; the owner is its message.
	Progress Kind = "progress"
	// Collection is the input of a collection, and Start that of a start it has; the position is its number.
	Collection Kind = "collection"
	Start      Kind = "start"
	// Object is outside of the database; the owner is the run, a slash, and the ID of the object.
	Object Kind = "object"
)

// Payload is a payload as an argument of a statement, for a column of type bytea. Nil bytes are NULL.
type Payload struct {
	Place

	Project string
	Bytes   []byte
}

// Text is a [Payload] for a column of type text.
type Text Payload

// GoString keeps payloads out of the errors of the driver, which print what it could not encode.
func (p Payload) GoString() string {
	return fmt.Sprintf("the payload of %s %d of %s", p.Kind, p.Seq, p.Owner)
}

// String is GoString for other verbs.
func (p Payload) String() string { return p.GoString() }

// GoString is that of a [Payload].
func (t Text) GoString() string { return Payload(t).GoString() }

// String is GoString for other verbs.
func (t Text) String() string { return t.GoString() }

// Codec makes what is stored of payloads. It is safe for concurrent use.
type Codec interface {
	// Seal returns what is stored of a payload, which must not be changed. It does no I/O: it fails with an error that
	// is over when [Codec.Prepare] has succeeded.
	Seal(p Payload) ([]byte, error)
	// Open replaces what is stored by the payloads. Each begins with [Magic]. It may take time.
	Open(list []Item) error
	// Prepare does what Seal and Open of a project's payloads need, and may take time. It fails with errors that Seal
	// and Open would fail with.
	Prepare(project string) error
	// PrepareRuns does so for the payloads of a run, and of those that begin with the same writes. Prepare comes before.
	// Seal asks for what a run needs that was not prepared, which takes time.
	PrepareRuns(project, run string, begin []string) error
}

// Identity stores payloads as they are.
type Identity struct{}

// Seal implements [Codec].
func (Identity) Seal(p Payload) ([]byte, error) {
	if !IsMade(p.Bytes) {
		return p.Bytes, nil
	}
	return append(Begin(Plain), p.Bytes...), nil
}

// Open implements [Codec]. It fails with [ErrUnreadable] for all forms but [Plain].
func (Identity) Open(list []Item) error {
	for _, item := range list {
		form, rest := Split(item.Get())
		if form != Plain {
			return fmt.Errorf("%w: %s of %s", ErrUnreadable, item.Kind, item.Owner)
		}
		item.Set(rest)
	}
	return nil
}

// Prepare implements [Codec].
func (Identity) Prepare(string) error { return nil }

// PrepareRuns implements [Codec].
func (Identity) PrepareRuns(string, string, []string) error { return nil }

// IsUnreadable reports whether a payload that was opened is what is stored all the same: its key is destroyed.
func IsUnreadable(payload []byte) bool { return IsMade(payload) && payload[len(Magic)] != byte(Plain) }

// Begin returns [Magic] and the form.
func Begin(f Form) []byte { return append([]byte(Magic), byte(f)) }

// IsMade reports whether stored bytes are no payload as its user sent it.
func IsMade(b []byte) bool { return len(b) > len(Magic) && string(b[:len(Magic)]) == Magic }

// Split returns the form of stored bytes of which [IsMade] is true, and what follows.
func Split(b []byte) (Form, []byte) { return Form(b[len(Magic)]), b[len(Magic)+1:] }

// EncodeText returns stored bytes as text.
func EncodeText(b []byte) string {
	if !IsMade(b) {
		return string(b)
	}
	return textMark + base64.RawStdEncoding.EncodeToString(b)
}

// Row is what has payloads that were read from the database, or more of them: a pointer to a row.
type Row interface {
	// Payloads adds the payloads to those to be opened.
	Payloads(o *Opener)
}

// Item is something stored that is to be replaced by its payload.
type Item struct {
	Place

	bytes *[]byte
	text  *string
}

// Get returns what is stored, and what Set has set.
func (i Item) Get() []byte {
	if i.bytes != nil {
		return *i.bytes
	}
	b, _ := base64.RawStdEncoding.DecodeString(strings.TrimPrefix(*i.text, textMark))
	return b
}

// Set replaces it.
func (i Item) Set(payload []byte) {
	if i.bytes != nil {
		*i.bytes = payload
	} else {
		*i.text = string(payload)
	}
}

// Opener collects what is to be opened.
type Opener struct{ items []Item }

// Bytes adds a payload.
func (o *Opener) Bytes(at Place, b *[]byte) {
	if IsMade(*b) {
		o.items = append(o.items, Item{at, b, nil})
	}
}

// Text adds a payload in a column of type text.
func (o *Opener) Text(at Place, text *string) {
	if strings.HasPrefix(*text, textMark) {
		o.items = append(o.items, Item{at, nil, text})
	}
}

// Items returns what was added.
func (o *Opener) Items() []Item { return o.items }

// Open opens what was added. It fails as the codec does.
func (o *Opener) Open(c Codec) error {
	if len(o.items) == 0 {
		return nil
	}
	return c.Open(o.items)
}

// BytesValue makes a payload an argument for the driver if the pool has no codec.
func (p Payload) BytesValue() ([]byte, error) {
	if p.Bytes == nil {
		return nil, nil
	}
	return Identity{}.Seal(p)
}

// Value is BytesValue for texts. No JSON looks like what a codec makes, so it is stored as it is.
func (t Text) Value() (driver.Value, error) {
	if t.Bytes == nil {
		return nil, nil
	}
	return string(t.Bytes), nil
}
