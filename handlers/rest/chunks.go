package rest

import (
	"bytes"
	"unicode/utf8"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/payload"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// newChunkJSON encodes a chunk as it was written.
func newChunkJSON(c store.Chunk) api.Chunk { return newContentJSON(c.Idx, c.Data) }

// newLineJSON encodes a chunk of a stream that a function wrote: its value.
func newLineJSON(c store.Chunk) api.Chunk {
	return api.Chunk{Index: c.Idx, Value: bytes.TrimSuffix(c.Data, []byte("\n"))}
}

// newContentJSON encodes content: as text if it is UTF-8, otherwise as bytes.
func newContentJSON(index int64, data []byte) api.Chunk {
	if utf8.Valid(data) {
		text := string(data)
		return api.Chunk{Index: index, Text: &text}
	}
	return api.Chunk{Index: index, Base64: data}
}

// decodeChunk encodes a chunk for people: what is in it, if the Workflow SDK wrote it. It also returns the work: see
// [payload.Decoded].
func decodeChunk(c store.Chunk) (v api.Chunk, work int) {
	content, ok := payload.Content(c.Data)
	if !ok {
		return newChunkJSON(c), len(c.Data)
	}
	d := payload.DecodeContent(content, read.MaxListedPayload)
	if d.Value != nil {
		v = api.Chunk{Index: c.Idx, Value: d.Value}
	} else {
		v = newContentJSON(c.Idx, content)
	}
	v.Encoding = d.Encoding
	return v, d.Work + len(content)
}

// chunkWork is about how much work of decoding a page of chunks is done at a time, so that others decode in between:
// some milliseconds at worst.
const chunkWork = 128 << 10

// decodeChunks decodes the chunks of a page of a stream, or the first ones if they are much work.
func (r *request) decodeChunks(of entities.StreamName, chunks []store.Chunk) (shown []api.Chunk, err error) {
	if _, _, ok := of.OfRun(); ok {
		return encodeAll(chunks, newLineJSON), nil
	}
	shown = make([]api.Chunk, 0, len(chunks))
	for work := 0; len(shown) < len(chunks) && work < read.MaxPageBytes && err == nil; {
		shown, err = decodeFor(r, func() []api.Chunk {
			for until := work + chunkWork; len(shown) < len(chunks) && work < until; {
				v, n := decodeChunk(chunks[len(shown)])
				shown, work = append(shown, v), work+n
			}
			return shown
		})
	}
	return shown, err
}
