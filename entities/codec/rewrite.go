package codec

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// tagRaw marks a byte string whose content replaces it. Raw writes the tag and rewrite removes it, so it never leaves
// the package. It cannot occur otherwise, because rewrite rejects all other tags except dates.
const tagRaw = math.MaxUint64

// rewrite converts the encoder's output, which is well-formed and definite, to CBOR that clients accept. Containers
// stay unchanged, so it processes one head after the other without recursion.
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

// rewriteHead converts the head at the start of src, with the content of a string, and appends it to dst. It returns
// the number of bytes of src that it converted.
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

// appendInteger appends the integer item, as a float if it exceeds 32 bits. cbor-x decodes 64-bit integers as BigInt,
// on which arithmetic throws, and 32-bit ones below -2^31 as positive numbers (protocol §2.1).
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

// appendText appends a text, with U+FFFD in place of invalid UTF-8.
func appendText(dst, text []byte) []byte {
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte(string(utf8.RuneError)))
	}
	return append(appendHead(dst, majorText, uint64(len(text))), text...)
}

// appendTag appends the head of a date, the only tag in the output of Marshal.
func appendTag(dst []byte, h head) ([]byte, error) {
	switch h.arg {
	case tagDate:
		return appendHead(dst, majorTag, tagDate), nil
	case tagDateText:
		return dst, errors.New("a time.Time: use codec.Time")
	}
	return dst, fmt.Errorf("tag %d: use codec.Raw for CBOR that is kept as received", h.arg)
}

// wrapRaw wraps raw into an item that rewrite replaces by raw.
func wrapRaw(raw []byte) []byte {
	item := appendHead(make([]byte, 0, len(raw)+18), majorTag, tagRaw)
	item = appendHead(item, majorBytes, uint64(len(raw)))
	return append(item, raw...)
}

// appendRaw appends the content of the item that wrapRaw made, which is at the start of src with the tag's head h. It
// returns the size of that item.
func appendRaw(dst, src []byte, h head) ([]byte, int, error) {
	inner, err := parseHead(src[h.size:])
	if err != nil {
		return nil, 0, err
	}
	start := h.size + inner.size
	end := start + int(inner.arg)
	return append(dst, src[start:end]...), end, nil
}
