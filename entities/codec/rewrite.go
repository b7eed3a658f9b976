package codec

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// tagRaw marks a byte string whose content is to stand there as CBOR of its own. Raw writes it, rewrite removes it;
// it never leaves the package. No other item can bear it: rewrite refuses all tags but dates.
const tagRaw = math.MaxUint64

// rewrite turns the encoder's output, which is well-formed and definite, into what clients accept. Containers need
// no change, so it goes over the heads one by one, without recursion.
func rewrite(src []byte) ([]byte, error) {
	dst := make([]byte, 0, len(src))
	for len(src) > 0 {
		var n int
		var err error
		if dst, n, err = rewriteHead(dst, src); err != nil {
			return nil, err
		}
		src = src[n:]
	}
	return dst, nil
}

// rewriteHead appends to dst what becomes of the head at the start of src, and of the content of a string. It
// returns how much of src that was.
func rewriteHead(dst, src []byte) ([]byte, int, error) {
	h, err := parseHead(src)
	if err != nil {
		return nil, 0, err
	}
	n := h.size
	switch h.major {
	case majorUint, majorNegative:
		dst, err = appendInteger(dst, h, src[:n])
	case majorText:
		n += int(h.arg)
		dst = appendText(dst, src[h.size:n])
	case majorBytes:
		n += int(h.arg)
		dst = append(dst, src[:n]...)
	case majorTag:
		if h.arg == tagRaw {
			return appendRaw(dst, src, h)
		}
		dst, err = appendTag(dst, h)
	default:
		dst = append(dst, src[:n]...)
	}
	return dst, n, err
}

// appendInteger appends the integer item, as a float if it takes more than 32 bits. cbor-x reads 64-bit integers as
// BigInt, on which arithmetic throws, and those of 32 bits below -2^31 as positive numbers.
func appendInteger(dst []byte, h head, item []byte) ([]byte, error) {
	switch {
	case h.major == majorUint && h.arg <= math.MaxUint32, h.major == majorNegative && h.arg <= math.MaxInt32:
		return append(dst, item...), nil
	case h.major == majorUint && h.arg <= maxSafe:
		return appendFloat(dst, float64(h.arg)), nil
	case h.major == majorNegative && h.arg < maxSafe:
		return appendFloat(dst, -1-float64(h.arg)), nil
	}
	return dst, errors.New("integer beyond 2^53, which a JS number cannot hold")
}

// appendText appends a text, with U+FFFD for what is not UTF-8.
func appendText(dst, text []byte) []byte {
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte(string(utf8.RuneError)))
	}
	return append(appendHead(dst, majorText, uint64(len(text))), text...)
}

// appendTag appends the head of a date, the only tag that Marshal's own output has.
func appendTag(dst []byte, h head) ([]byte, error) {
	switch h.arg {
	case tagDate:
		return appendHead(dst, majorTag, tagDate), nil
	case tagDateText:
		return dst, errors.New("a time.Time: use codec.Time")
	}
	return dst, fmt.Errorf("tag %d: use codec.Raw for CBOR that is kept as received", h.arg)
}

// wrapRaw returns an item that rewrite replaces by raw.
func wrapRaw(raw []byte) []byte {
	item := appendHead(make([]byte, 0, len(raw)+18), majorTag, tagRaw)
	item = appendHead(item, majorBytes, uint64(len(raw)))
	return append(item, raw...)
}

// appendRaw appends what wrapRaw was given, from the item at the start of src with the tag's head h. It returns the
// size of that item.
func appendRaw(dst, src []byte, h head) ([]byte, int, error) {
	inner, err := parseHead(src[h.size:])
	if err != nil {
		return nil, 0, err
	}
	start := h.size + inner.size
	end := start + int(inner.arg)
	return append(dst, src[start:end]...), end, nil
}
