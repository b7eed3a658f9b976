package payload

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
)

// writeTyped writes a value that is encoded as a type name and arguments.
func (d *devalueDecoder) writeTyped(list [][]byte) {
	name, args := unquote(list[0]), list[1:]
	switch {
	case name == "null":
		d.writePairs(args, literal)
	case name == "Set":
		if own := d.sdkList(args); own != nil {
			args = own
		}
		d.writeList(args)
	case name == "Map" || name == "Headers" && len(args) > 0:
		d.writeEntries(args)
	case len(args) == 0:
		d.writeTagged(name, nil)
	case name == "RegExp":
		d.writeRegExp(args)
	case name == "Object":
		d.writeRef(args[0], place{key: []byte(`""`)})
	case slices.Contains([]string{"Date", "BigInt", "URL", "URLSearchParams"}, name) ||
		strings.HasPrefix(name, "Temporal."):
		d.writePlain(name, args[0])
	case name == "ArrayBuffer" || name == "DataView" || strings.HasSuffix(name, "Array"):
		d.writeBinary(name, args)
	default:
		d.writeTagged(name, args[0])
	}
}

// textOf returns a string that is given directly or by index, and reports whether there is one.
func (d *devalueDecoder) textOf(raw []byte) (string, bool) {
	if raw[0] != '"' {
		raw = d.referred(raw)
	}
	text, ok := literal(raw)
	if ok {
		d.spend(len(raw))
	}
	return text, ok
}

// literal returns a string that is given directly, and reports whether there is one.
func literal(raw []byte) (string, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	return unquote(raw), true
}

// writePlain writes a type whose JSON form is a string.
func (d *devalueDecoder) writePlain(name string, raw []byte) {
	text, ok := d.textOf(raw)
	const empty = "." // the SDK writes this instead of an empty string
	switch {
	case !ok:
		d.fail(errOpaque)
	case name == "Date" && (text == empty || text == ""):
		d.write(`null`)
	case name == "URLSearchParams" && text == empty:
		d.writeText("")
	default:
		d.writeText(text)
	}
}

// writeRegExp writes a regular expression, encoded as source and flags or as an object with both.
func (d *devalueDecoder) writeRegExp(args [][]byte) {
	source, flags := args[0], []byte(`""`)
	if len(args) > 1 {
		flags = args[1]
	}
	if source[0] != '"' {
		for _, f := range fields(d.referred(source)) {
			switch unquote(f.key) {
			case "source":
				source = f.value
			case "flags":
				flags = f.value
			}
		}
	}
	before, ok := d.textOf(source)
	after, okAfter := d.textOf(flags)
	if !ok || !okAfter {
		d.fail(errOpaque)
	}
	d.writeText("/" + before + "/" + after)
}

// sdkList returns the array that the SDK's own form of a type refers to, or nil if the value has devalue's form.
func (d *devalueDecoder) sdkList(args [][]byte) [][]byte {
	if len(args) != 1 {
		return nil
	}
	raw := d.referred(args[0])
	if len(raw) == 0 || raw[0] != '[' {
		return nil
	}
	list := items(raw)
	if list == nil {
		return [][]byte{}
	}
	if _, err := index(list[0]); err != nil {
		return nil
	}
	d.spend(len(raw))
	return list
}

// writeEntries writes keys and values, encoded alternately or as references to pairs.
func (d *devalueDecoder) writeEntries(args [][]byte) {
	if pairs := d.sdkList(args); pairs != nil {
		args = make([][]byte, 0, 2*len(pairs))
		for _, p := range pairs {
			pair := d.sdkList([][]byte{p})
			if len(pair) != 2 {
				d.fail(errOpaque)
				return
			}
			args = append(args, pair...)
		}
	}
	if d.areNames(args) {
		d.writePairs(args, d.textOf)
	} else {
		d.writePairList(args)
	}
}

// areNames reports whether all keys are distinct strings.
func (d *devalueDecoder) areNames(args [][]byte) bool {
	seen := map[string]bool{}
	for pair := range slices.Chunk(args, 2) {
		name, ok := d.textOf(pair[0])
		if !ok || seen[name] || d.err != nil {
			return false
		}
		seen[name] = true
	}
	return true
}

// writePairs writes alternating keys and values as an object.
func (d *devalueDecoder) writePairs(args [][]byte, name func([]byte) (string, bool)) {
	all := make([]field, 0, len(args)/2)
	for pair := range slices.Chunk(args, 2) {
		key, ok := name(pair[0])
		if !ok || len(pair) != 2 {
			d.fail(errOpaque)
			return
		}
		all = append(all, field{quote(key), pair[1]})
	}
	d.writeObject(all, "")
}

// writePairList writes alternating keys and values as an array of pairs.
func (d *devalueDecoder) writePairList(args [][]byte) {
	if len(args)%2 != 0 {
		d.fail(errOpaque)
		return
	}
	d.write(`[`)
	for i := 0; i < len(args) && d.err == nil; i += 2 {
		d.path = append(d.path, place{position: i / 2})
		d.writeList(args[i : i+2])
		d.path = d.path[:len(d.path)-1]
		d.write(`,`)
	}
	d.end(']')
}

// writeBinary writes bytes, or a view of a buffer.
func (d *devalueDecoder) writeBinary(name string, args [][]byte) {
	encoded, ok := d.textOf(args[0])
	if !ok {
		d.writeView(name, args)
		return
	}
	if encoded == "." { // the SDK writes this for no bytes
		encoded = ""
	}
	if _, err := base64.StdEncoding.DecodeString(encoded); err != nil {
		d.fail(errOpaque)
	}
	d.write(`{"$type":` + string(quote(name)) + `,"base64":"` + encoded + `"}`)
}

// writeView writes a typed array over all or a part of a buffer.
func (d *devalueDecoder) writeView(name string, args [][]byte) {
	d.write(`{"$type":` + string(quote(name)) + `,"value":`)
	d.writeRef(args[0], place{key: []byte(`"value"`)})
	parts := []string{`,"offset":`, `,"length":`}
	for i, raw := range args[1:min(len(args), 1+len(parts))] {
		n, err := index(raw)
		if err != nil {
			d.fail(errOpaque)
		}
		d.write(parts[i] + strconv.Itoa(n))
	}
	d.write(`}`)
}

// writeTagged writes a type without a special JSON form: its name, and its fields or its one value.
func (d *devalueDecoder) writeTagged(name string, value []byte) {
	given := `"$type":` + string(quote(name)) + `,`
	if value == nil {
		d.writeObject(nil, given)
		return
	}
	n, _ := index(value)
	raw := d.referred(value)
	if len(raw) == 0 || raw[0] != '{' || d.open[n] > 0 {
		d.writeObject([]field{{[]byte(`"value"`), value}}, given)
		return
	}
	d.spend(len(raw))
	all := fields(raw)
	if strings.HasSuffix(name, "Error") || name == "DOMException" {
		given = `"name":` + string(quote(name)) + `,`
		if slices.ContainsFunc(all, func(f field) bool { return unquote(f.key) == "name" }) {
			given = ""
		}
	}
	d.enter(n)
	d.writeObject(all, given)
	d.leave(n)
}
