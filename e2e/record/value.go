package record

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"
)

// Value decodes a body into a tree of JSON types. It represents the additional types of CBOR without loss:
//
//	{"$date": "2026-11-21T01:41:43.197Z"}   a date
//	{"$text": "devl[1]"}                    printable bytes
//	{"$bytes": "3q2+7w=="}                  other bytes
//	{"$tag": 64, "value": …}                a value with a tag other than a date's
//	5.0                                     a float; integers have no point
//
// Frames, parts of multipart bodies and chunks of streams are lists. A body that does not match its content type and
// path is represented as bytes. Numbers are [json.Number], as in a file that was read.
func Value(path, contentType string, body []byte) any {
	if len(body) == 0 {
		return nil
	}
	v, err := value(path, contentType, body)
	if err != nil {
		return showBytes(body)
	}
	return v
}

func value(path, contentType string, body []byte) (any, error) {
	kind, params, _ := mime.ParseMediaType(contentType)
	switch {
	case kind == "application/cbor":
		return fromCBOR(body)
	case kind == "application/json":
		return fromJSON(body)
	case kind == "multipart/mixed":
		return fromParts(path, body, params["boundary"])
	case kind == "application/vnd.workflow.v4-frames", strings.Contains(path, "/events/"):
		return fromFrames(body)
	default:
		return showBytes(body), nil
	}
}

func fromJSON(body []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("JSON: %w", err)
	}
	return v, nil
}

// decoder decodes CBOR as the protocol uses it: maps with unique text keys.
var decoder = func() cbor.DecMode {
	mode, err := cbor.DecOptions{
		DefaultMapType: reflect.TypeFor[map[string]any](), DupMapKey: cbor.DupMapKeyEnforcedAPF,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return mode
}()

func fromCBOR(body []byte) (any, error) {
	var v any
	if err := decoder.Unmarshal(body, &v); err != nil {
		return nil, fmt.Errorf("CBOR: %w", err)
	}
	return show(v), nil
}

// show converts a decoded CBOR value.
func show(v any) any {
	switch v := v.(type) {
	case map[string]any:
		shown := make(map[string]any, len(v))
		for key, of := range v {
			shown[key] = show(of)
		}
		return shown
	case []any:
		shown := make([]any, len(v))
		for i, of := range v {
			shown[i] = show(of)
		}
		return shown
	case []byte:
		return showBytes(v)
	case time.Time: // dates are floats of seconds, exact only to the microsecond
		return map[string]any{"$date": v.UTC().Round(time.Microsecond).Format(time.RFC3339Nano)}
	case cbor.Tag:
		return map[string]any{"$tag": json.Number(strconv.FormatUint(v.Number, 10)), "value": show(v.Content)}
	case float64:
		return showFloat(v)
	case uint64, int64:
		return json.Number(fmt.Sprint(v))
	case nil, bool, string:
		return v
	default:
		return map[string]any{"$" + fmt.Sprintf("%T", v): fmt.Sprint(v)}
	}
}

func showFloat(f float64) any {
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return json.Number(text)
}

func showBytes(b []byte) any {
	if printable(b) {
		return map[string]any{"$text": string(b)}
	}
	return map[string]any{"$bytes": base64.StdEncoding.EncodeToString(b)}
}

// printable reports whether the bytes are text without control characters other than whitespace.
func printable(b []byte) bool {
	unfit := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' }
	return utf8.Valid(b) && !bytes.ContainsFunc(b, unfit)
}

// fromFrames decodes frames as pairs of metadata and body.
func fromFrames(body []byte) (any, error) {
	list := []any{}
	for r := bytes.NewReader(body); r.Len() > 0; {
		meta, err := block(r)
		if err != nil {
			return nil, err
		}
		data, err := block(r)
		if err != nil {
			return nil, err
		}
		says, err := fromCBOR(meta)
		if err != nil {
			return nil, err
		}
		frame := map[string]any{"meta": says}
		if len(data) > 0 {
			frame["body"] = showBytes(data)
		}
		list = append(list, frame)
	}
	return list, nil
}

func fromChunks(body []byte) (any, error) {
	list := []any{}
	for r := bytes.NewReader(body); r.Len() > 0; {
		chunk, err := block(r)
		if err != nil {
			return nil, err
		}
		list = append(list, showBytes(chunk))
	}
	return list, nil
}

// block reads a length-prefixed block.
func block(r *bytes.Reader) ([]byte, error) {
	var size uint32
	if err := binary.Read(r, binary.BigEndian, &size); err != nil {
		return nil, fmt.Errorf("length: %w", err)
	}
	if int64(size) > int64(r.Len()) {
		return nil, fmt.Errorf("%d bytes announced, %d left", size, r.Len())
	}
	data := make([]byte, size)
	_, err := io.ReadFull(r, data)
	return data, err
}

// fromParts decodes the parts of a multipart body with their headers.
func fromParts(path string, body []byte, boundary string) (any, error) {
	list := []any{}
	parts := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("multipart: %w", err)
		}
		data, err := io.ReadAll(part)
		if err != nil {
			return nil, fmt.Errorf("multipart: %w", err)
		}
		header := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(part.Header)) {
			header[name] = strings.Join(part.Header[name], ", ")
		}
		list = append(list, map[string]any{
			"header": header, "body": Value(path, part.Header.Get("Content-Type"), data),
		})
	}
}
