package contract

import (
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/await"
)

// MaxAwaited limits the references of one condition.
const MaxAwaited = 1000

// awaited is the JSON form of [await.Condition]: references are "step:ID" and "wait:ID".
type awaited struct {
	Any []string   `json:"any"`
	All [][]string `json:"all"`
}

// condition returns the validated condition; nil if there is none.
func (a *awaited) condition() (*await.Condition, error) {
	if a == nil {
		return nil, nil
	}
	n := len(a.Any)
	var c await.Condition
	var err error
	if c.Any, err = references(a.Any); err != nil {
		return nil, err
	}
	for i, list := range a.All {
		if len(list) == 0 {
			return nil, entities.Invalid(`await: list %d of "all" is empty, so it would hold at once`, i)
		}
		refs, err := references(list)
		if err != nil {
			return nil, err
		}
		n, c.All = n+len(list), append(c.All, refs)
	}
	if n > MaxAwaited {
		return nil, entities.Invalid("await: %d references; the limit is %d", n, MaxAwaited)
	}
	return &c, nil
}

func references(list []string) ([]await.Ref, error) {
	refs := make([]await.Ref, 0, len(list))
	for _, text := range list {
		kind, id, _ := strings.Cut(text, ":")
		var ref await.Ref
		switch kind {
		case entities.KindStep:
			ref.Step = id
		case entities.KindWait:
			ref.Wait = id
		default:
			return nil, entities.Invalid(`await: %.64q is neither "step:ID" nor "wait:ID"`, text)
		}
		if err := entities.ValidateID("await: the ID of a "+kind, id); err != nil {
			return nil, err
		}
		refs = append(refs, ref)
	}
	return refs, nil
}
