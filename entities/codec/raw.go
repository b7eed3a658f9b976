package codec

import "maps"

// Raw is a CBOR item that is stored and returned byte for byte, such as an executionContext. Unmarshal has validated
// it, so every client can read it. It may contain items that Marshal itself never writes: a client's own BigInt, Map or
// Set. A nil Raw is an absent value. Unmarshal(raw, &v) decodes it.
type Raw []byte

// MarshalCBOR validates and copies the item. A nil Raw becomes undefined.
func (r Raw) MarshalCBOR() ([]byte, error) {
	if len(r) == 0 {
		return []byte{itemUndefined}, nil
	}
	data, err := scan(r)
	if err != nil {
		return nil, err
	}
	return wrapRaw(data), nil
}

// UnmarshalCBOR copies the item. It ignores undefined, but keeps null.
func (r *Raw) UnmarshalCBOR(data []byte) error {
	if len(data) == 1 && data[0] == itemUndefined {
		return nil
	}
	*r = append(Raw{}, data...)
	return nil
}

// Map is a CBOR map with text keys and verbatim values, such as the metadata of a frame.
type Map map[string]Raw

// UnmarshalCBOR decodes a map without the keys whose value is undefined. It ignores null and undefined.
func (m *Map) UnmarshalCBOR(data []byte) error {
	if isNil(data) {
		return nil
	}
	all := map[string]Raw{}
	if err := decMode.Unmarshal(data, &all); err != nil {
		return mismatch(err)
	}
	maps.DeleteFunc(all, func(_ string, value Raw) bool { return value == nil })
	*m = all
	return nil
}
