package payload

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
)

// Encodings of payloads, as the JSON form of events names them.
const (
	EncodingJSON      = "json"
	EncodingDevalue   = "devalue"
	EncodingCBOR      = "cbor"
	EncodingNone      = "none" // no payload
	EncodingOpaque    = "opaque"
	EncodingEncrypted = "encrypted"
)

const (
	// MaxDecoded limits the size of payloads that [Decode] reads, and of its result, in bytes.
	MaxDecoded = 16 << 20

	maxDepth  = 1000
	maxNested = 4 // layers of compression
	prefixLen = 4
)

var (
	errOpaque   = errors.New("not a payload of this encoding")
	errTooLarge = errors.New("payload too large")
)

// Decode decodes a payload as JSON, and returns its encoding. The value is nil if the encoding is [EncodingNone],
// [EncodingEncrypted] or [EncodingOpaque], or if it is larger than [MaxDecoded].
func Decode(data []byte) (value json.RawMessage, encoding string) {
	value, encoding, _ = DecodeWithin(data, MaxDecoded)
	return value, encoding
}

// DecodeWithin is [Decode] with a limit in bytes. A payload that is larger, encoded or decoded, does not fit and has no
// value.
func DecodeWithin(data []byte, limit int) (value json.RawMessage, encoding string, fits bool) {
	value, encoding, err := decode(data, limit, maxNested)
	switch {
	case errors.Is(err, errTooLarge):
		return nil, encoding, false
	case err != nil:
		return nil, EncodingOpaque, true
	default:
		return value, encoding, true
	}
}

func decode(data []byte, limit, nested int) (json.RawMessage, string, error) {
	if len(data) == 0 {
		return nil, EncodingNone, nil
	}
	switch prefix, body := cutPrefix(data); prefix {
	case "encr", "encp":
		return nil, EncodingEncrypted, nil
	case "zstd", "gzip":
		if nested == 0 {
			return nil, EncodingOpaque, errOpaque
		}
		inner, err := decompress(prefix, body, limit)
		if err != nil {
			return nil, EncodingOpaque, err
		}
		return decode(inner, limit, nested-1)
	case "devl":
		value, err := decodeDevalue(body, limit)
		return value, EncodingDevalue, err
	}
	if json.Valid(data) && utf8.Valid(data) {
		if len(data) > limit {
			return nil, EncodingJSON, errTooLarge
		}
		return data, EncodingJSON, nil
	}
	if !mayBeCBOR(data[0]) {
		return nil, EncodingOpaque, errOpaque
	}
	value, err := decodeCBOR(data, limit)
	return value, EncodingCBOR, err
}

func cutPrefix(data []byte) (prefix string, body []byte) {
	if len(data) < prefixLen {
		return "", data
	}
	return string(data[:prefixLen]), data[prefixLen:]
}

// decompress fails with errTooLarge if the result exceeds the limit.
func decompress(format string, data []byte, limit int) ([]byte, error) {
	r, err := decompressor(format, bytes.NewReader(data))
	if err != nil {
		return nil, errOpaque
	}
	defer func() { _ = r.Close() }()
	out, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if len(out) > limit || errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return nil, errTooLarge
	}
	if err != nil {
		return nil, errOpaque
	}
	return out, nil
}

func decompressor(format string, r io.Reader) (io.ReadCloser, error) {
	if format == "gzip" {
		return gzip.NewReader(r)
	}
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(2*MaxDecoded),
		zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}
