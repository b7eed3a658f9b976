package payload

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
)

// writeTyped writes a value that is encoded as a type name and arguments.
func (d *devalueDecoder) writeTyped(list [][]byte) error {
	name, args := unquote(list[0]), list[1:]
	switch {
	case name == "null":
		return d.writePairs(args, literal)
	case len(args) == 0 && name != "Set" && name != "Map":
		return d.writeTagged(name, nil)
	}
	switch name {
	case "Date", "BigInt", "URL", "URLSearchParams":
		return d.writePlain(name, args[0])
	case "RegExp":
		return d.writeRegExp(args)
	case "Set":
		if own := d.sdkList(args); own != nil {
			return d.writeList(own)
		}
		return d.writeList(args)
	case "Map", "Headers":
		return d.writeEntries(args)
	case "Object":
		return d.writeRef(args[0], "")
	}
	switch {
	case strings.HasPrefix(name, "Temporal."):
		return d.writePlain(name, args[0])
	case name == "ArrayBuffer" || name == "DataView" || strings.HasSuffix(name, "Array"):
		return d.writeBinary(name, args)
	default:
		return d.writeTagged(name, args[0])
	}
}

// textOf returns a string that is given directly or by index.
func (d *devalueDecoder) textOf(raw []byte) (string, error) {
	if raw[0] != '"' {
		n, err := d.pointer(raw)
		if err != nil {
			return "", err
		}
		if raw = d.values[n]; raw[0] != '"' {
			return "", errOpaque
		}
	}
	if err := d.spend(len(raw)); err != nil {
		return "", err
	}
	return unquote(raw), nil
}

// writePlain writes a type whose JSON form is a string.
func (d *devalueDecoder) writePlain(name string, raw []byte) error {
	text, err := d.textOf(raw)
	if err != nil {
		return err
	}
	const empty = "." // the SDK writes this instead of an empty string
	switch {
	case name == "Date" && (text == empty || text == ""):
		return d.write(`null`)
	case name == "URLSearchParams" && text == empty:
		text = ""
	}
	return d.writeText(text)
}

// writeRegExp writes a regular expression, encoded as source and flags or as an object with both.
func (d *devalueDecoder) writeRegExp(args [][]byte) error {
	source, flags := args[0], []byte(`""`)
	if len(args) > 1 {
		flags = args[1]
	}
	if source[0] != '"' {
		n, err := d.pointer(source)
		if err != nil {
			return err
		}
		for _, f := range fields(d.values[n]) {
			switch unquote(f.key) {
			case "source":
				source = f.value
			case "flags":
				flags = f.value
			}
		}
	}
	before, err := d.textOf(source)
	if err != nil {
		return err
	}
	after, err := d.textOf(flags)
	if err != nil {
		return err
	}
	return d.writeText("/" + before + "/" + after)
}

// sdkList returns the array that the SDK's own form of a type refers to, or nil if the value has devalue's form.
func (d *devalueDecoder) sdkList(args [][]byte) [][]byte {
	if len(args) != 1 {
		return nil
	}
	n, err := d.pointer(args[0])
	if err != nil || d.values[n][0] != '[' {
		return nil
	}
	list := items(d.values[n])
	if list == nil {
		return [][]byte{}
	}
	if _, err := index(list[0]); err != nil || d.spend(len(d.values[n])) != nil {
		return nil
	}
	return list
}

// writeEntries writes keys and values, encoded alternately or as references to pairs.
func (d *devalueDecoder) writeEntries(args [][]byte) error {
	if pairs := d.sdkList(args); pairs != nil {
		args = make([][]byte, 0, 2*len(pairs))
		for _, p := range pairs {
			pair := d.sdkList([][]byte{p})
			if len(pair) != 2 {
				return errOpaque
			}
			args = append(args, pair...)
		}
	}
	if d.areNames(args) {
		return d.writePairs(args, d.textOf)
	}
	return d.writePairList(args)
}

// areNames reports whether all keys are distinct strings.
func (d *devalueDecoder) areNames(args [][]byte) bool {
	seen := map[string]bool{}
	for i := 0; i < len(args); i += 2 {
		name, err := d.textOf(args[i])
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

// writePairs writes alternating keys and values as an object.
func (d *devalueDecoder) writePairs(args [][]byte, name func([]byte) (string, error)) error {
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
	return d.writeObject(all, "")
}

// writePairList writes alternating keys and values as an array of pairs.
func (d *devalueDecoder) writePairList(args [][]byte) error {
	if len(args)%2 != 0 {
		return errOpaque
	}
	if err := d.write(`[`); err != nil {
		return err
	}
	for i := 0; i < len(args); i += 2 {
		d.path = append(d.path, strconv.Itoa(i/2))
		err := d.writeList(args[i : i+2])
		d.path = d.path[:len(d.path)-1]
		if err != nil {
			return err
		}
		if err := d.write(`,`); err != nil {
			return err
		}
	}
	return d.end(']')
}

// writeBinary writes bytes, or a view of a buffer.
func (d *devalueDecoder) writeBinary(name string, args [][]byte) error {
	encoded, err := d.textOf(args[0])
	if err != nil {
		return d.writeView(name, args)
	}
	if encoded == "." { // the SDK writes this for no bytes
		encoded = ""
	}
	if _, err := base64.StdEncoding.DecodeString(encoded); err != nil {
		return errOpaque
	}
	return d.write(`{"$type":` + string(quote(name)) + `,"base64":"` + encoded + `"}`)
}

// writeView writes a typed array over all or a part of a buffer.
func (d *devalueDecoder) writeView(name string, args [][]byte) error {
	if err := d.write(`{"$type":` + string(quote(name)) + `,"value":`); err != nil {
		return err
	}
	if err := d.writeRef(args[0], "value"); err != nil {
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
		if err := d.write(part + strconv.Itoa(n)); err != nil {
			return err
		}
	}
	return d.write(`}`)
}

// writeTagged writes a type without a special JSON form: its name, and its fields or its one value.
func (d *devalueDecoder) writeTagged(name string, value []byte) error {
	given := `"$type":` + string(quote(name)) + `,`
	if value == nil {
		return d.writeObject(nil, given)
	}
	n, err := index(value)
	if err != nil || n < 0 || n >= len(d.values) || d.values[n][0] != '{' {
		return d.writeObject([]field{{[]byte(`"value"`), value}}, given)
	}
	if _, ok := d.open[n]; ok {
		return d.writeObject([]field{{[]byte(`"value"`), value}}, given)
	}
	if err := d.spend(len(d.values[n])); err != nil {
		return err
	}
	all := fields(d.values[n])
	if strings.HasSuffix(name, "Error") || name == "DOMException" {
		given = `"name":` + string(quote(name)) + `,`
		if slices.ContainsFunc(all, func(f field) bool { return unquote(f.key) == "name" }) {
			given = ""
		}
	}
	d.open[n] = len(d.path)
	defer delete(d.open, n)
	return d.writeObject(all, given)
}
