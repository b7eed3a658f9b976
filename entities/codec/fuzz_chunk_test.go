package codec

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzReadChunks ensures that a write is read as a whole or not at all, within its limits, and that the chunks are
// exactly those that were sent.
func FuzzReadChunks(f *testing.F) {
	f.Add([]byte(nil), 3, 100)
	f.Add(chunked([]byte("a")), 3, 100)
	f.Add(chunked([]byte("a"), nil, []byte("bc")), 3, 3)
	f.Add(chunked([]byte("a"), nil, []byte("bc")), 2, 3)
	f.Add(chunked([]byte("a"), nil, []byte("bc")), 3, 2)
	f.Add(chunked([]byte("abc"))[:6], 3, 100)
	f.Add([]byte{0, 0}, 3, 100)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 'a'}, 3, 1<<30)
	f.Fuzz(func(t *testing.T, data []byte, count, size int) {
		limits := ChunkLimits{Count: max(1, count), Bytes: max(1, size)}
		chunks, err := ReadChunks(bytes.NewReader(data), limits)
		checkKind(t, err)
		if err != nil {
			if chunks != nil {
				t.Errorf("got %d chunks beside error %v", len(chunks), err)
			}
			return
		}
		sum := 0
		for _, c := range chunks {
			sum += len(c)
		}
		if len(chunks) > limits.Count || sum > limits.Bytes {
			t.Errorf("got %d chunks of %d bytes, want at most %+v", len(chunks), sum, limits)
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
