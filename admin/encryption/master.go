package encryption

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
)

// MasterKey wraps data keys. It may be in a service, and slow: the context limits how long it may take. About is
// authenticated with the key: a wrapped key is good for nothing else.
type MasterKey interface {
	Wrap(ctx context.Context, key []byte, about About) ([]byte, error)
	Unwrap(ctx context.Context, wrapped []byte, about About) ([]byte, error)
}

// About says which data key it is, and of which project.
type About struct{ Key, Project string }

// MasterKeys are named keys in their order: the first one wraps new data keys, the others only unwrap.
type MasterKeys []NamedKey

// NamedKey is a master key with the name by which data keys refer to it.
type NamedKey struct {
	Name string
	MasterKey
}

// maxMasterKeys is how many there may be.
const maxMasterKeys = 32

// Service has keys that never leave it; Key returns one by what identifies it there.
type Service interface {
	Key(id string) (MasterKey, error)
}

// inService begins a key that is in a service. No base64 begins so.
const inService = "aws-kms:"

// ParseMasterKeys reads keys from a text: NAME=KEY, separated by commas, spaces or line ends. A key is 32 bytes in
// base64, or aws-kms: and what identifies it in the service, which may be nil. Lines that begin with # are left out.
// Its errors do not contain keys.
func ParseMasterKeys(text string, service Service) (MasterKeys, error) {
	var keys MasterKeys
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, entry := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) }) {
			name, value, _ := strings.Cut(entry, "=")
			if entities.ValidateID("name", name) != nil || value == "" || keys.named(name) != nil {
				return nil, fmt.Errorf("key %d: write NAME=KEY, with a name for each: letters, digits, - and _", len(keys)+1)
			}
			key, err := parseMasterKey(value, service)
			if err != nil {
				return nil, fmt.Errorf("key %s: %w", name, err)
			}
			keys = append(keys, NamedKey{name, key})
		}
	}
	if len(keys) > maxMasterKeys {
		return nil, fmt.Errorf("there are %d keys, and %d at most: wrap the data keys anew, and remove old ones",
			len(keys), maxMasterKeys)
	}
	return keys, nil
}

func parseMasterKey(value string, service Service) (MasterKey, error) {
	if id, ok := strings.CutPrefix(value, inService); ok {
		if service == nil {
			return nil, errors.New("this program has no client for key services: use the server")
		}
		return service.Key(id) //nolint:wrapcheck // the caller says which key it is
	}
	key, err := base64.StdEncoding.DecodeString(value)
	if err != nil || len(key) != keySize {
		return nil, fmt.Errorf("it is not %d bytes in base64: make one with openssl rand -base64 32", keySize)
	}
	return newLocalKey(key)
}

// named returns the key with the name; nil if there is none.
func (k MasterKeys) named(name string) MasterKey {
	i := slices.IndexFunc(k, func(n NamedKey) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return k[i].MasterKey
}

// localKey is a master key in this process.
type localKey struct{ aead cipher.AEAD }

func newLocalKey(key []byte) (MasterKey, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what is wrong with the key
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return localKey{aead}, err
}

// Wrap implements [MasterKey].
func (k localKey) Wrap(_ context.Context, key []byte, about About) ([]byte, error) {
	return k.aead.Seal(nil, nil, key, about.bytes()), nil //nolint:gosec // the cipher makes random nonces
}

// Unwrap implements [MasterKey].
func (k localKey) Unwrap(_ context.Context, wrapped []byte, about About) ([]byte, error) {
	return k.aead.Open(nil, nil, wrapped, about.bytes()) //nolint:wrapcheck // the caller says which key it is
}

func (a About) bytes() []byte {
	id, _ := hex.DecodeString(a.Key) // it is hexadecimal
	return append(id, a.Project...)
}

// newKey returns a random data key.
func newKey() []byte {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return key
}
