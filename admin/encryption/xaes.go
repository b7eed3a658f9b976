package encryption

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
)

const (
	keySize   = 32
	nonceSize = 24
	tagSize   = 16
)

// xaes is XAES-256-GCM (C2SP), an extension of AES-256-GCM to nonces that are long enough to be random.
type xaes struct {
	block cipher.Block
	k1    [aes.BlockSize]byte
}

// newXAES returns the cipher of a key of keySize bytes.
func newXAES(key []byte) (*xaes, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what is wrong with the key
	}
	x := &xaes{block: block}
	block.Encrypt(x.k1[:], x.k1[:])
	msb := byte(0)
	for i := len(x.k1) - 1; i >= 0; i-- {
		x.k1[i], msb = x.k1[i]<<1|msb, x.k1[i]>>7
	}
	x.k1[len(x.k1)-1] ^= msb * 0b10000111
	return x, nil
}

// derive returns AES-256-GCM with the key for the first half of a nonce.
func (x *xaes) derive(nonce []byte) (cipher.AEAD, error) {
	key := make([]byte, 0, keySize)
	for i := range byte(2) {
		m := append([]byte{0, i + 1, 'X', 0}, nonce...)
		subtle.XORBytes(m, m, x.k1[:])
		x.block.Encrypt(m, m)
		key = append(key, m...)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err //nolint:wrapcheck // it does not fail for keys of this size
	}
	return cipher.NewGCM(block) //nolint:wrapcheck // it does not fail for AES
}

// seal appends the encrypted text to dst.
func (x *xaes) seal(dst, nonce, text, data []byte) ([]byte, error) {
	c, err := x.derive(nonce[:nonceSize/2])
	if err != nil {
		return nil, err
	}
	return c.Seal(dst, nonce[nonceSize/2:], text, data), nil
}

// open returns the text.
func (x *xaes) open(nonce, sealed, data []byte) ([]byte, error) {
	c, err := x.derive(nonce[:nonceSize/2])
	if err != nil {
		return nil, err
	}
	return c.Open([]byte{}, nonce[nonceSize/2:], sealed, data) //nolint:wrapcheck // the caller says what was changed
}
