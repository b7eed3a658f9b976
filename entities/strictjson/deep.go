package strictjson

// MaxDepth limits the nesting of arrays and objects in the results of steps. Decoders have limits of their own, of
// 10,000 levels or fewer, and what they decode has the result somewhere inside it.
const MaxDepth = 1000

// wrapped is how many levels more the payloads in a body may have: a command is one itself, and flows put values into
// each other, such as the outputs of a map's items.
const wrapped = 32

// IsDeep reports whether valid JSON is nested deeper than [MaxDepth] levels.
func IsDeep(value []byte) bool { return isDeeper(value, MaxDepth) }

func isDeeper(value []byte, levels int) bool {
	depth, inString := 0, false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case inString && c == '\\':
			i++ // what it escapes may be a quote
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			if depth++; depth > levels {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}
