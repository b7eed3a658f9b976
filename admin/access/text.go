package access

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
)

// A key's text is "sw_", the name of the cell and "_" if the server has one, 256 random bits in base 62, and a checksum
// of all before it. The prefix and the fixed length let secret scanners find leaked keys; the checksum lets scanners
// and the server reject false positives without a database. The cell lets a proxy send requests to where the key was
// made.
const (
	// keyPrefix starts the text of every key.
	keyPrefix = "sw_"

	randomBytes    = 32
	randomDigits   = 43 // of 256 bits in base 62
	checksumDigits = 6  // of 32 bits
	shownDigits    = 6  // of the random digits, for people to tell keys apart: 36 bits of 256
)

// newText returns the text of a new key of the cell.
func newText(cell entities.Cell) string {
	var b [randomBytes]byte
	_, _ = rand.Read(b[:]) // it never fails
	text := cell.Prefix(keyPrefix) + base62(new(big.Int).SetBytes(b[:]), randomDigits)
	return text + checksum(text)
}

// base62 formats n with the given number of digits: 0-9, a-z, A-Z.
func base62(n *big.Int, digits int) string {
	text := n.Text(62)
	return strings.Repeat("0", digits-len(text)) + text
}

func checksum(s string) string {
	return base62(new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(s)))), checksumDigits)
}

// shown returns the start of a text, which is public.
func shown(text string) string { return text[:len(text)-randomDigits-checksumDigits+shownDigits] }

// parse returns the cell of a text, and reports whether it has the format and checksum of a key.
func parse(text string) (cell entities.Cell, ok bool) {
	cell, without := entities.CutCell(keyPrefix, text)
	if !strings.HasPrefix(without, keyPrefix) || len(without) != len(keyPrefix)+randomDigits+checksumDigits {
		return "", false
	}
	end := len(text) - checksumDigits
	return cell, checksum(text[:end]) == text[end:]
}

// hash is the SHA-256 of a text. The database stores nothing else of it.
type hash = [sha256.Size]byte
