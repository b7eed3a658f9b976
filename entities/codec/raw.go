package codec

// Raw is a CBOR item kept as received and written again byte for byte, such as an executionContext. It is what
// Unmarshal accepted, so every client can read it, and may hold what Marshal itself never writes: a client's own
// BigInt, Map or Set. A nil Raw is an absent value. Unmarshal(raw, &v) looks inside.
type Raw []byte

// MarshalCBOR writes the item as it is, after checking it, and a nil Raw as undefined.
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

// UnmarshalCBOR copies the item; undefined leaves r as it is, null is kept.
func (r *Raw) UnmarshalCBOR(data []byte) error {
	if len(data) == 1 && data[0] == itemUndefined {
		return nil
	}
	*r = append(Raw{}, data...)
	return nil
}

// Map is a CBOR map of text keys with its values kept as received, such as the meta of a frame.
type Map map[string]Raw

// UnmarshalCBOR reads a map, leaving out keys whose value is undefined; null and undefined leave m as it is.
func (m *Map) UnmarshalCBOR(data []byte) error {
	if isNil(data) {
		return nil
	}
	all := map[string]Raw{}
	if err := decMode.Unmarshal(data, &all); err != nil {
		return mismatch(err)
	}
	for key, value := range all {
		if value == nil {
			delete(all, key)
		}
	}
	*m = all
	return nil
}
