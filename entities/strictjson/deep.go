package strictjson

// MaxDepth limits the nesting of arrays and objects in the results of steps. Decoders have limits of their own, of
// 10,000 levels or fewer, and what they decode has the result somewhere inside it.
const MaxDepth = 1000

// IsDeep reports whether valid JSON is nested deeper than [MaxDepth] levels.
func IsDeep(value []byte) bool {
	depth, inString := 0, false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case inString && c == '\\':
			i++ // what it escapes may be a quote
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			if depth++; depth > MaxDepth {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}
