package payload

import (
	"encoding/binary"
	"slices"
)

const lengthLen = 4

// formats are the four letters with which payloads of the Workflow SDK begin.
var formats = []string{"devl", "zstd", "gzip", "encr", "encp"}

// Content returns the content of a chunk of a stream that the Workflow SDK wrote, which is one frame: the length of the
// content in four bytes, and the content. Of other chunks it reports false.
func Content(chunk []byte) (content []byte, ok bool) {
	if len(chunk) < lengthLen || int64(binary.BigEndian.Uint32(chunk)) != int64(len(chunk)-lengthLen) {
		return nil, false
	}
	return chunk[lengthLen:], true
}

// DecodeContent decodes the content of a frame as [Decode] does. A stream of bytes has content without a format, which
// may look like any encoding, and is opaque.
func DecodeContent(content []byte, limit int) Decoded {
	if len(content) < prefixLen || !slices.Contains(formats, string(content[:prefixLen])) {
		return Decoded{Encoding: EncodingOpaque, Work: len(content)}
	}
	return Decode(content, limit)
}
