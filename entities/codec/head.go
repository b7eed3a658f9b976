package codec

import (
	"encoding/binary"
	"errors"
	"math"
)

// The major types of CBOR items (RFC 8949 §3.1).
const (
	majorUint byte = iota
	majorNegative
	majorBytes
	majorText
	majorArray
	majorMap
	majorTag
	majorSimple
)

// The tags that clients send (protocol §2.1).
const (
	tagDateText = 0   // RFC 3339 text
	tagDate     = 1   // seconds since 1970
	tagBytes    = 64  // Uint8Array
	tagSet      = 258 // JS Set, on an array
	tagMap      = 259 // JS Map, on a map
)

// Values of the additional information in a head's first byte (RFC 8949 §3).
const (
	infoFalse      = 20
	infoOneByte    = 24
	infoTwoBytes   = 25
	infoFourBytes  = 26
	infoEightBytes = 27
	infoIndefinite = 31
)

// Items of one byte.
const (
	itemNull      = 0xf6
	itemUndefined = 0xf7
	itemBreak     = 0xff
)

// maxSafe is the greatest integer up to which a JS number represents every integer.
const maxSafe = 1 << 53

var (
	errHeadShort    = errors.New("the data ends inside an item")
	errHeadReserved = errors.New("reserved item length")
)

// head is the first part of a CBOR item: its type and argument.
type head struct {
	major byte
	info  byte
	arg   uint64 // value, length, count, tag number or float bits; 0 when indefinite
	size  int    // of the head in bytes
}

// indefinite reports whether the item has indefinite length.
func (h head) indefinite() bool { return h.info == infoIndefinite }

// parseHead reads the head at the start of data.
func parseHead(data []byte) (head, error) {
	if len(data) == 0 {
		return head{}, errHeadShort
	}
	h := head{major: data[0] >> 5, info: data[0] & 0x1f, size: 1}
	switch {
	case h.info < infoOneByte:
		h.arg = uint64(h.info)
		return h, nil
	case h.info == infoIndefinite:
		return h, nil
	case h.info > infoEightBytes:
		return head{}, errHeadReserved
	}
	n := 1 << (h.info - infoOneByte)
	if len(data) < 1+n {
		return head{}, errHeadShort
	}
	for _, b := range data[1 : 1+n] {
		h.arg = h.arg<<8 | uint64(b)
	}
	h.size += n
	return h, nil
}

// appendHead appends the shortest encoding of a head.
func appendHead(dst []byte, major byte, arg uint64) []byte {
	m := major << 5
	switch {
	case arg < infoOneByte:
		return append(dst, m|byte(arg))
	case arg <= math.MaxUint8:
		return append(dst, m|infoOneByte, byte(arg))
	case arg <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, m|infoTwoBytes), uint16(arg))
	case arg <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, m|infoFourBytes), uint32(arg))
	default:
		return binary.BigEndian.AppendUint64(append(dst, m|infoEightBytes), arg)
	}
}

// appendFloat appends f as a 64-bit float item.
func appendFloat(dst []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, majorSimple<<5|infoEightBytes), math.Float64bits(f))
}

// isNil reports whether data is the item null or undefined.
func isNil(data []byte) bool {
	return len(data) == 1 && (data[0] == itemNull || data[0] == itemUndefined)
}

// Count returns the number of values in well-formed CBOR: numbers, texts, lists, maps and so on, at any depth.
func Count(data []byte) (n int) {
	for len(data) > 0 {
		h, err := parseHead(data)
		if err != nil {
			break
		}
		if data[0] != itemBreak && h.major != majorTag {
			n++
		}
		if data = data[h.size:]; h.major == majorBytes || h.major == majorText {
			data = data[h.arg:]
		}
	}
	return n
}
