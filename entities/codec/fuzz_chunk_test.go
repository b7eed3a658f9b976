package codec

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzReadChunks ensures that a write is read as a whole or not at all, within the limits, and that the chunks are
// exactly those that were sent.
func FuzzReadChunks(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(chunked([]byte("a")))
	f.Add(chunked([]byte("a"), nil, []byte("bc")))
	f.Add(bytes.Repeat(chunked(nil), maxChunks+1))
	f.Add(chunked([]byte("abc"))[:6])
	f.Add([]byte{0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 'a'})
	f.Fuzz(func(t *testing.T, data []byte) {
		chunks, err := ReadChunks(bytes.NewReader(data))
		checkKind(t, err)
		if err != nil {
			if chunks != nil {
				t.Errorf("got %d chunks beside error %v", len(chunks), err)
			}
			return
		}
		if len(chunks) > maxChunks {
			t.Errorf("got %d chunks, want at most %d", len(chunks), maxChunks)
		}
		if again := chunked(chunks...); !bytes.Equal(again, data) {
			t.Errorf("%x came back as %x", data, again)
		}
	})
}

// chunked returns the body of a write with the chunks.
func chunked(chunks ...[]byte) []byte {
	var b []byte
	for _, c := range chunks {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(c))), c...)
	}
	return b
}
