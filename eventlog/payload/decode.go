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
	// MaxDecoded is the largest limit of [Decode] and of [Field], in bytes.
	MaxDecoded = 16 << 20

	maxDepth  = 1000
	maxNested = 4 // layers of compression
	prefixLen = 4
)

var (
	errOpaque   = errors.New("not a payload of this encoding")
	errTooLarge = errors.New("payload too large")
)

// Decoded is the result of [Decode]. The value is nil if the encoding is [EncodingNone], [EncodingEncrypted] or
// [EncodingOpaque].
type Decoded struct {
	Value    json.RawMessage
	Encoding string
	// TooLarge reports that the payload exceeds the limit, encoded or decoded. It then has no value.
	TooLarge bool
	// Work is the effort of decoding, in bytes of JSON that take as long to check. A small payload can take much work:
	// it may be compressed, or refer to the same value many times.
	Work int
}

// Decode decodes a payload as JSON. The limit is that of the payload and of its value, in bytes.
func Decode(data []byte, limit int) Decoded {
	d := decoder{limit: limit}
	value, encoding, err := d.decode(data, maxNested)
	switch {
	case errors.Is(err, errTooLarge):
		return Decoded{Encoding: encoding, TooLarge: true, Work: d.work}
	case err != nil:
		return Decoded{Encoding: EncodingOpaque, Work: d.work}
	default:
		return Decoded{Value: value, Encoding: encoding, Work: d.work}
	}
}

// cborWork is how many times longer a byte of CBOR takes than a byte of JSON, which need not be decoded.
const cborWork = 4

// decoder decodes one payload and measures the work.
type decoder struct {
	limit int
	work  int
}

func (d *decoder) decode(data []byte, nested int) (json.RawMessage, string, error) {
	if len(data) == 0 {
		return nil, EncodingNone, nil
	}
	prefix := string(data[:min(prefixLen, len(data))])
	body := data[len(prefix):]
	switch prefix {
	case "encr", "encp":
		return nil, EncodingEncrypted, nil
	case "zstd", "gzip":
		if nested == 0 {
			return nil, EncodingOpaque, errOpaque
		}
		inner, err := decompress(prefix, body, d.limit)
		d.work += len(inner)
		if err != nil {
			return nil, EncodingOpaque, err
		}
		return d.decode(inner, nested-1)
	case "devl":
		value, work, err := decodeDevalue(body, d.limit)
		d.work += work
		return value, EncodingDevalue, err
	}
	d.work += len(data)
	if json.Valid(data) && utf8.Valid(data) {
		if len(data) > d.limit {
			return nil, EncodingJSON, errTooLarge
		}
		return data, EncodingJSON, nil
	}
	if !mayBeCBOR(data[0]) {
		return nil, EncodingOpaque, errOpaque
	}
	d.work += cborWork * len(data)
	value, err := decodeCBOR(data, d.limit)
	return value, EncodingCBOR, err
}

// decompress fails with errTooLarge if the result exceeds the limit. It returns what it has read even if it fails.
func decompress(format string, data []byte, limit int) ([]byte, error) {
	r, err := decompressor(format, bytes.NewReader(data))
	if err != nil {
		return nil, errOpaque
	}
	defer func() { _ = r.Close() }()
	out, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if len(out) > limit || errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return out, errTooLarge
	}
	if err != nil {
		return out, errOpaque
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
