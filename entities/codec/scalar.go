package codec

import "math"

// Int is an integer that a JS number represents exactly, between -2^53 and 2^53. Clients send small ones as CBOR
// integers, large ones as floats, and BigInts as 64-bit integers; Int accepts all three.
type Int int64

// UnmarshalCBOR decodes an integer or a float without fraction. It ignores null and undefined.
func (i *Int) UnmarshalCBOR(data []byte) error {
	h, err := parseHead(data)
	switch {
	case err != nil:
		return malformed("%v", err)
	case isNil(data):
		return nil
	case h.major == majorUint && h.arg <= maxSafe:
		*i = Int(h.arg)
		return nil
	case h.major == majorNegative && h.arg < maxSafe:
		*i = -1 - Int(h.arg)
		return nil
	case h.major <= majorNegative:
		return malformed("integer beyond 2^53")
	}
	var f float64
	if err := decMode.Unmarshal(data, &f); err != nil {
		return mismatch(err)
	}
	if f != math.Trunc(f) || math.Abs(f) > maxSafe {
		return malformed("number %v where an integer is expected", f)
	}
	*i = Int(f)
	return nil
}

// Bytes is a byte string. Clients send a Uint8Array with a tag and a Buffer without, and read both.
type Bytes []byte

// UnmarshalCBOR copies a byte string. It ignores null and undefined.
func (b *Bytes) UnmarshalCBOR(data []byte) error {
	if isNil(data) {
		return nil
	}
	h, err := parseHead(data)
	if err == nil && h.major == majorTag && h.arg == tagBytes {
		data = data[h.size:]
		h, err = parseHead(data)
	}
	if err != nil {
		return malformed("%v", err)
	}
	if h.major != majorBytes || h.indefinite() || uint64(len(data)-h.size) != h.arg {
		return malformed("not a byte string where one is expected")
	}
	*b = append(Bytes{}, data[h.size:]...)
	return nil
}
