package limit

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
)

// memoName is the name of the limit by which steps wait for equal ones: one slot with each digest. It is not a valid
// name, so nobody else can use or change the limit, and lists leave it out.
const memoName = "memo/share"

// OfMemo returns the use of the limit that lets steps with the digest wait for each other.
func OfMemo(hash string) entities.LimitUse { return entities.LimitUse{Name: memoName, Key: hash} }

// IsMemo reports whether the limit is the one by which steps wait for equal ones.
func IsMemo(name string) bool { return name == memoName }

// WithoutMemo returns the uses of the limits that somebody has named.
func WithoutMemo(uses []entities.LimitUse) []entities.LimitUse {
	return slices.DeleteFunc(slices.Clone(uses), func(u entities.LimitUse) bool { return IsMemo(u.Name) })
}

// PutMemo queues the creation of the limit by which steps wait for equal ones, if one of the uses needs it.
func PutMemo(b *pgx.Batch, project entities.Project, uses []entities.LimitUse) {
	if !slices.ContainsFunc(uses, func(u entities.LimitUse) bool { return IsMemo(u.Name) }) {
		return
	}
	b.Queue(`
		INSERT INTO limits (`+columns+`) VALUES ($1, $2, 1, 0, 0, '0', 0, false, $3, false, now(), now())
		ON CONFLICT (project, name) DO NOTHING`, project, memoName, Wait)
}
