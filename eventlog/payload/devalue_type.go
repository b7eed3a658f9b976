package payload

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
)

// typed writes a value that has the name of a type in front.
func (s *shower) typed(list [][]byte) error {
	name, args := unquote(list[0]), list[1:]
	switch {
	case name == "null":
		return s.pairs(args, literal)
	case len(args) == 0 && name != "Set" && name != "Map":
		return s.tag(name, nil)
	}
	switch name {
	case "Date", "BigInt", "URL", "URLSearchParams":
		return s.plain(name, args[0])
	case "RegExp":
		return s.regexp(args)
	case "Set":
		if own := s.own(args); own != nil {
			return s.list(own)
		}
		return s.list(args)
	case "Map", "Headers":
		return s.entries(args)
	case "Object":
		return s.ref(args[0], "")
	}
	switch {
	case strings.HasPrefix(name, "Temporal."):
		return s.plain(name, args[0])
	case name == "ArrayBuffer" || name == "DataView" || strings.HasSuffix(name, "Array"):
		return s.binary(name, args)
	default:
		return s.tag(name, args[0])
	}
}

// textOf is a text that is given, or pointed at.
func (s *shower) textOf(raw []byte) (string, error) {
	if raw[0] != '"' {
		n, err := s.pointer(raw)
		if err != nil {
			return "", err
		}
		if raw = s.values[n]; raw[0] != '"' {
			return "", errOpaque
		}
	}
	if err := s.spend(len(raw)); err != nil {
		return "", err
	}
	return unquote(raw), nil
}

// plain writes what is a text.
func (s *shower) plain(name string, raw []byte) error {
	text, err := s.textOf(raw)
	if err != nil {
		return err
	}
	const empty = "." // is how the SDK writes what would be an empty text
	switch {
	case name == "Date" && (text == empty || text == ""):
		return s.write(`null`)
	case name == "URLSearchParams" && text == empty:
		text = ""
	}
	return s.writeText(text)
}

// regexp writes the text of a regular expression, which is given as two, or as an object that has them.
func (s *shower) regexp(args [][]byte) error {
	source, flags := args[0], []byte(`""`)
	if len(args) > 1 {
		flags = args[1]
	}
	if source[0] != '"' {
		n, err := s.pointer(source)
		if err != nil {
			return err
		}
		for _, f := range fields(s.values[n]) {
			switch unquote(f.key) {
			case "source":
				source = f.value
			case "flags":
				flags = f.value
			}
		}
	}
	before, err := s.textOf(source)
	if err != nil {
		return err
	}
	after, err := s.textOf(flags)
	if err != nil {
		return err
	}
	return s.writeText("/" + before + "/" + after)
}

// own is the list that a type of the SDK's points at; nil when it is not of that form.
func (s *shower) own(args [][]byte) [][]byte {
	if len(args) != 1 {
		return nil
	}
	n, err := s.pointer(args[0])
	if err != nil || s.values[n][0] != '[' {
		return nil
	}
	list := items(s.values[n])
	if list == nil {
		return [][]byte{}
	}
	if _, err := index(list[0]); err != nil || s.spend(len(s.values[n])) != nil {
		return nil
	}
	return list
}

// entries writes what has keys and values: by turns, or in pairs that are pointed at.
func (s *shower) entries(args [][]byte) error {
	if pairs := s.own(args); pairs != nil {
		args = make([][]byte, 0, 2*len(pairs))
		for _, p := range pairs {
			pair := s.own([][]byte{p})
			if len(pair) != 2 {
				return errOpaque
			}
			args = append(args, pair...)
		}
	}
	if s.areNames(args) {
		return s.pairs(args, s.textOf)
	}
	return s.pairList(args)
}

// areNames reports whether the keys are texts, no two alike.
func (s *shower) areNames(args [][]byte) bool {
	seen := map[string]bool{}
	for i := 0; i < len(args); i += 2 {
		name, err := s.textOf(args[i])
		if err != nil || seen[name] {
			return false
		}
		seen[name] = true
	}
	return true
}

func literal(raw []byte) (string, error) {
	if raw[0] != '"' {
		return "", errOpaque
	}
	return unquote(raw), nil
}

// pairs writes keys and values, given by turns, as an object.
func (s *shower) pairs(args [][]byte, name func([]byte) (string, error)) error {
	if len(args)%2 != 0 {
		return errOpaque
	}
	all := make([]field, 0, len(args)/2)
	for pair := range slices.Chunk(args, 2) {
		key, err := name(pair[0])
		if err != nil {
			return err
		}
		all = append(all, field{quote(key), pair[1]})
	}
	return s.object(all, "")
}

// pairList writes keys and values, given by turns, as a list of pairs.
func (s *shower) pairList(args [][]byte) error {
	if len(args)%2 != 0 {
		return errOpaque
	}
	if err := s.write(`[`); err != nil {
		return err
	}
	for i := 0; i < len(args); i += 2 {
		s.path = append(s.path, strconv.Itoa(i/2))
		err := s.list(args[i : i+2])
		s.path = s.path[:len(s.path)-1]
		if err != nil {
			return err
		}
		if err := s.write(`,`); err != nil {
			return err
		}
	}
	return s.end(']')
}

// binary writes bytes, or a view of some.
func (s *shower) binary(name string, args [][]byte) error {
	encoded, err := s.textOf(args[0])
	if err != nil {
		return s.viewOf(name, args)
	}
	if encoded == "." { // is how the SDK writes none
		encoded = ""
	}
	if _, err := base64.StdEncoding.DecodeString(encoded); err != nil {
		return errOpaque
	}
	return s.write(`{"$type":` + string(quote(name)) + `,"base64":"` + encoded + `"}`)
}

// viewOf writes a view of a buffer that is pointed at, or of a part of one.
func (s *shower) viewOf(name string, args [][]byte) error {
	if err := s.write(`{"$type":` + string(quote(name)) + `,"value":`); err != nil {
		return err
	}
	if err := s.ref(args[0], "value"); err != nil {
		return err
	}
	for i, part := range []string{`,"offset":`, `,"length":`} {
		if len(args) <= i+1 {
			break
		}
		n, err := index(args[i+1])
		if err != nil {
			return err
		}
		if err := s.write(part + strconv.Itoa(n)); err != nil {
			return err
		}
	}
	return s.write(`}`)
}

// tag writes what has a name, and fields or one value.
func (s *shower) tag(name string, value []byte) error {
	given := `"$type":` + string(quote(name)) + `,`
	if value == nil {
		return s.object(nil, given)
	}
	n, err := index(value)
	if err != nil || n < 0 || n >= len(s.values) || s.values[n][0] != '{' {
		return s.object([]field{{[]byte(`"value"`), value}}, given)
	}
	if _, ok := s.open[n]; ok {
		return s.object([]field{{[]byte(`"value"`), value}}, given)
	}
	if err := s.spend(len(s.values[n])); err != nil {
		return err
	}
	all := fields(s.values[n])
	if strings.HasSuffix(name, "Error") || name == "DOMException" {
		given = `"name":` + string(quote(name)) + `,`
		if slices.ContainsFunc(all, func(f field) bool { return unquote(f.key) == "name" }) {
			given = ""
		}
	}
	s.open[n] = len(s.path)
	defer delete(s.open, n)
	return s.object(all, given)
}
