package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities/atrest"
)

var (
	// ErrUnavailable is an [atrest.ErrUnavailable]: the bucket or folder did not do what was asked.
	ErrUnavailable = fmt.Errorf("%w: large ones can neither be written nor read at the moment: try again",
		atrest.ErrUnavailable)
	// ErrLost means that the object of a payload is missing, or is not the one that was written.
	ErrLost = errors.New("the payload is lost: its object is missing or was changed; the server's log names it")
	// ErrMissing is the error of [Objects.Get] if there is no such object.
	ErrMissing = errors.New("no such object")
)

// objectError is [ErrUnavailable] or [ErrLost], with a cause that is not for clients.
type objectError struct{ kind, cause error }

// Error implements error.
func (e *objectError) Error() string { return e.kind.Error() + ": " + e.cause.Error() }

// Unwrap returns the kind and the cause.
func (e *objectError) Unwrap() []error { return []error{e.kind, e.cause} }

// Public returns the text for clients.
func (e *objectError) Public() string { return e.kind.Error() }

// Objects stores objects by their keys, PROJECT/ID. Without an error of Put, the object is durable.
type Objects interface {
	Put(ctx context.Context, key string, data []byte) error
	// Get reads an object of which the size is known. It fails with [ErrMissing].
	Get(ctx context.Context, key string, size int64) ([]byte, error)
	// Delete deletes an object. That there is none is no error.
	Delete(ctx context.Context, key string) error
}

// unavailable translates an error of the store's objects.
func unavailable(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, ErrLost) || ctx.Err() != nil {
		return err
	}
	return &objectError{ErrUnavailable, err}
}

// openLimit is how long it may take to read the payloads of a page.
const openLimit = 2 * time.Minute

// Codec reads the objects of payloads that the database has references to. All else it leaves to another codec, which
// also encrypts the objects.
type Codec struct {
	atrest.Codec

	objects Objects // nil if there are none
	reads   *share.Pool
}

// NewCodec returns a codec. Without objects, payloads of the form [atrest.Reference] cannot be read.
func NewCodec(c atrest.Codec, objects Objects) *Codec {
	return &Codec{c, objects, share.NewPool(transfers)}
}

// Open implements [atrest.Codec]. It fails with [ErrUnavailable] and [ErrLost], too.
func (c *Codec) Open(list []atrest.Item) error {
	found, rest, err := c.find(list)
	if err != nil {
		return err
	}
	for _, f := range found {
		if f.Set(f.object); atrest.IsMade(f.object) {
			f.Place = placeOf(f.Owner, f.id)
			rest = append(rest, f.Item)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return c.Codec.Open(rest) //nolint:wrapcheck // its errors say what failed
}

// Embed replaces references by the objects: the form [atrest.Embedded], or the payload if that is not encrypted. So
// they can be stored, and opened, in another database. It leaves all else.
func (c *Codec) Embed(list []atrest.Item) error {
	found, _, err := c.find(list)
	for _, f := range found {
		if f.Set(f.object); atrest.IsMade(f.object) {
			f.Set(append(append(atrest.Begin(atrest.Embedded), f.id[:]...), f.object...))
		}
	}
	return err
}

// object is an item with the object that it stands for.
type object struct {
	atrest.Item

	id     [idSize]byte
	object []byte
}

// find returns the objects of items that are references, or have them embedded, and the items that are neither.
func (c *Codec) find(list []atrest.Item) (found []object, rest []atrest.Item, err error) {
	var refs []Reference
	for _, item := range list {
		switch form, b := atrest.Split(item.Get()); {
		case form == atrest.Reference && c.objects == nil:
			return nil, nil, &objectError{ErrUnavailable, errNoObjects}
		case form == atrest.Reference:
			ref, ok := parse(b)
			if !ok {
				return nil, nil, &objectError{ErrLost, fmt.Errorf("event %d of %s has a damaged reference", item.Seq, item.Owner)}
			}
			refs, found = append(refs, ref), append(found, object{item, ref.ID, nil})
		case form == atrest.Embedded && len(b) > idSize:
			found = append(found, object{item, [idSize]byte(b[:idSize]), b[idSize:]})
		default:
			rest = append(rest, item)
		}
	}
	objects, err := c.get(refs)
	for i := range found {
		if err == nil && found[i].object == nil {
			found[i].object, objects = objects[0], objects[1:]
		}
	}
	return found, rest, err
}

// get reads objects.
func (c *Codec) get(refs []Reference) ([][]byte, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), openLimit)
	defer cancel()
	list := make([][]byte, len(refs))
	return list, each(ctx, c.reads, refs, func(ctx context.Context, i int) (err error) {
		at := key(refs[i].Project, refs[i].ID)
		list[i], err = c.objects.Get(ctx, at, refs[i].Size)
		switch {
		case errors.Is(err, ErrMissing):
			return &objectError{ErrLost, fmt.Errorf("there is no object %s: %s", at, restore)}
		case err == nil && sha256.Sum256(list[i]) != refs[i].Sum:
			return &objectError{ErrLost, fmt.Errorf("object %s is not the one that was written: %s", at, restore)}
		}
		return err
	})
}

var errNoObjects = errors.New("this process has no place for large payloads: set STEPWELL_PAYLOADS as at the others")

const restore = "restore it from an earlier version, or from a copy of the bucket"
