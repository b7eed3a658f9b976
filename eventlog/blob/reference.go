package blob

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
)

// Reference is what an event has in place of a payload that is kept as an object.
type Reference struct {
	Project entities.Project
	ID      [idSize]byte
	// Size is the size of the object in bytes, and Sum its SHA-256.
	Size int64
	Sum  [sha256.Size]byte
}

// idSize is the size of the ID of a blob, which is random.
const idSize = 16

// maxSize is the largest object: more than any request can have.
const maxSize = 1 << 30

// Stored returns what an event has in the database: the form [atrest.Reference].
func (r Reference) Stored() []byte {
	b := append(atrest.Begin(atrest.Reference), r.ID[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Size)) // not negative
	return append(append(b, r.Sum[:]...), r.Project...)
}

// parse returns the reference that follows the form, and reports whether it is one.
func parse(b []byte) (r Reference, ok bool) {
	const size, sum, project = idSize, idSize + 8, idSize + 8 + sha256.Size
	if len(b) <= project {
		return r, false
	}
	copy(r.ID[:], b)
	r.Size = int64(binary.BigEndian.Uint64(b[size:])) // checked below
	copy(r.Sum[:], b[sum:])
	r.Project = entities.Project(b[project:])
	return r, r.Size > 0 && r.Size <= maxSize
}

// key returns the key of a blob's object.
func key(project entities.Project, id [idSize]byte) string {
	return string(project) + "/" + hex.EncodeToString(id[:])
}

// placeOf returns the place for which an object is encrypted: a blob of a run.
func placeOf(run string, id [idSize]byte) atrest.Place {
	return atrest.Place{Kind: atrest.Object, Owner: run + "/" + hex.EncodeToString(id[:])}
}

// uuids are IDs as an argument of a statement.
func uuids(refs []Reference) []pgtype.UUID {
	ids := make([]pgtype.UUID, len(refs))
	for i, r := range refs {
		ids[i] = pgtype.UUID{Bytes: r.ID, Valid: true}
	}
	return ids
}
