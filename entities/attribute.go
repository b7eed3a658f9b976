package entities

import (
	"maps"
	"strings"
	"unicode/utf8"
)

// Limits on a run's attributes (protocol §3.9).
const (
	maxAttributes     = 64
	maxAttributeKey   = 256 // characters
	maxAttributeValue = 256 // bytes
)

// AttributeChange sets one attribute of a run, or removes it if Value is nil.
type AttributeChange struct {
	Key   string  `json:"key"`
	Value *string `json:"value"`
}

// MergeAttributes returns the attributes after the changes. It fails with [ErrInvalid] if a key or value is invalid, a
// key is changed twice, or too many attributes result. Keys that begin with "$" are reserved for the SDK and need
// allowReserved.
func MergeAttributes(have map[string]string, changes []AttributeChange, allowReserved bool) (map[string]string, error) {
	merged := maps.Clone(have)
	if merged == nil {
		merged = map[string]string{}
	}
	seen := map[string]bool{}
	for _, c := range changes {
		if seen[c.Key] {
			return nil, Invalid("attribute %q is changed twice", c.Key)
		}
		seen[c.Key] = true
		if err := c.Validate(allowReserved); err != nil {
			return nil, err
		}
		if c.Value == nil {
			delete(merged, c.Key)
		} else {
			merged[c.Key] = *c.Value
		}
	}
	if len(merged) > maxAttributes {
		return nil, Invalid("the run would have %d attributes; the limit is %d", len(merged), maxAttributes)
	}
	return merged, nil
}

// ValidateAttributes validates the attributes of a new run by the rules of [MergeAttributes].
func ValidateAttributes(attributes map[string]string, allowReserved bool) error {
	changes := make([]AttributeChange, 0, len(attributes))
	for key, value := range attributes {
		changes = append(changes, AttributeChange{Key: key, Value: &value})
	}
	_, err := MergeAttributes(nil, changes, allowReserved)
	return err
}

// Validate validates the key and the value. It fails with [ErrInvalid].
func (c AttributeChange) Validate(allowReserved bool) error {
	if n := len([]rune(c.Key)); n < 1 || n > maxAttributeKey {
		return Invalid("attribute key has %d characters; want 1 to %d", n, maxAttributeKey)
	}
	if strings.HasPrefix(c.Key, "$") && !allowReserved {
		return Invalid("attribute %q: keys that begin with $ are reserved", c.Key)
	}
	if err := ValidateText("attribute key", c.Key, 4*maxAttributeKey); err != nil || c.Value == nil {
		return err
	}
	if n := len(*c.Value); n > maxAttributeValue {
		return Invalid("attribute %q has a value of %d bytes; the limit is %d", c.Key, n, maxAttributeValue)
	}
	if !utf8.ValidString(*c.Value) || strings.ContainsRune(*c.Value, 0) {
		return Invalid("attribute %q has a value that contains NUL or invalid UTF-8", c.Key)
	}
	return nil
}
