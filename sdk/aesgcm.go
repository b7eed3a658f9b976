package stepwell

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
)

// aesName is what the names of payloads begin with that [NewAESGCM] has encoded. The ID of the key follows.
const aesName = "aes-256-gcm/"

// NewAESGCM returns a codec that encrypts with AES-256-GCM. It has keys of 32 random bytes by their IDs, which the
// server sees: texts such as 2026-11 of letters, digits, dots, dashes and underscores. It encrypts with the current
// one, and decrypts with that which the payload names.
//
// To rotate, give all apps and clients the new key, then make it the current one, and remove the old one when no run is
// left that has payloads of it. A start or message that is repeated under its ID after its key was changed is another
// one for the server, and refused.
//
// A payload is a nonce of 12 bytes, and the ciphertext with its tag; the name is authenticated. The nonce is made of
// the payload and of where it belongs, so that nobody can see that two payloads are equal, unless they are in the same
// place.
func NewAESGCM(current string, keys map[string][]byte) (Codec, error) {
	if _, ok := keys[current]; !ok {
		return nil, fmt.Errorf("there is no key %q, with which payloads are to be encrypted", current)
	}
	c := &aesGCM{current, map[string]aesKey{}}
	for id, key := range keys {
		if id == "" || len(id) > 64 || strings.ContainsFunc(id, notInKeyID) || len(key) != 32 {
			return nil, fmt.Errorf("key %q: the ID has 1 to 64 letters, digits, dots, dashes and underscores, and the key has"+
				" 32 bytes", id)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		made := aesKey{}
		if made.aead, err = cipher.NewGCM(block); err != nil {
			return nil, err
		}
		if made.nonces, err = hkdf.Key(sha256.New, key, nil, "stepwell nonces", sha256.Size); err != nil {
			return nil, err
		}
		c.keys[id] = made
	}
	return c, nil
}

func notInKeyID(r rune) bool {
	return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_", r)
}

type aesGCM struct {
	current string
	keys    map[string]aesKey
}

type aesKey struct {
	aead   cipher.AEAD
	nonces []byte // the key of nonces
}

// Encode implements [Codec].
func (c *aesGCM) Encode(id string, plain []byte) (name string, data []byte, err error) {
	key, name := c.keys[c.current], aesName+c.current
	where := sha256.Sum256([]byte(id))
	mac := hmac.New(sha256.New, key.nonces)
	mac.Write(where[:])
	mac.Write(plain)
	nonce := mac.Sum(nil)[:key.aead.NonceSize()]
	return name, key.aead.Seal(nonce, nonce, plain, []byte(name)), nil
}

// Decode implements [Codec].
func (c *aesGCM) Decode(name string, data []byte) (plain []byte, err error) {
	id, isOurs := strings.CutPrefix(name, aesName)
	key, ok := c.keys[id]
	switch {
	case !isOurs:
		return nil, errors.New("it is none of AES-256-GCM: use the codec that it names")
	case !ok:
		return nil, fmt.Errorf("there is no key %q: add it to the keys of the codec", id)
	case len(data) < key.aead.NonceSize():
		return nil, errors.New("it is cut off")
	}
	nonce, text := data[:key.aead.NonceSize()], data[key.aead.NonceSize():]
	if plain, err = key.aead.Open(nil, nonce, text, []byte(name)); err != nil {
		return nil, fmt.Errorf("key %q does not fit, or the payload was changed", id)
	}
	return plain, nil
}
