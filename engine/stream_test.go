package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
)

// TestOnlyMissingChunksAreWritten: those that the attempt has not written yet. What it has written is not refused, even if
// the stream takes no more.
func TestOnlyMissingChunksAreWritten(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		has    store.OpenStream
		from   int64
		chunks string
		want   string
		next   int64
		err    error
	}{
		"the first":                     {store.OpenStream{}, 0, "a b", "a b", 2, nil},
		"the next":                      {store.OpenStream{Chunks: 9, Next: 2}, 2, "c", "c", 3, nil},
		"repeated":                      {store.OpenStream{Chunks: 9, Next: 2}, 0, "a b", "", 2, nil},
		"repeated in part":              {store.OpenStream{Chunks: 9, Next: 2}, 1, "b c", "c", 3, nil},
		"repeated, and others came":     {store.OpenStream{Chunks: 9, Next: 7}, 0, "a b", "", 7, nil},
		"after some that never came":    {store.OpenStream{Chunks: 9, Next: 2}, 5, "f", "f", 6, nil},
		"closed":                        {store.OpenStream{Closed: true, Next: 2}, 2, "c", "", 0, entities.ErrStreamClosed},
		"closed, and repeated":          {store.OpenStream{Closed: true, Next: 2}, 1, "b", "", 2, nil},
		"the last chunk that it takes":  {store.OpenStream{Chunks: MaxChunks - 1}, 0, "a", "a", 1, nil},
		"too many chunks":               {store.OpenStream{Chunks: MaxChunks - 1}, 0, "a b", "", 0, entities.ErrStreamLimit},
		"the last byte that it takes":   {store.OpenStream{Bytes: MaxStreamBytes - 1}, 0, "a", "a", 1, nil},
		"too many bytes":                {store.OpenStream{Bytes: MaxStreamBytes - 1}, 0, "aa", "", 0, entities.ErrStreamLimit},
		"the last stream that it takes": {store.OpenStream{Streams: MaxStreams}, 0, "a", "a", 1, nil},
		"too many streams":              {store.OpenStream{Streams: MaxStreams + 1}, 0, "a", "", 0, entities.ErrStreamLimit},
	} {
		w := StreamWrite{Stream: "s", From: tt.from}
		for _, c := range strings.Fields(tt.chunks) {
			w.Chunks = append(w.Chunks, []byte(c))
		}
		chunks, next, err := w.missing(tt.has)
		var got []string
		for _, c := range chunks {
			got = append(got, string(c))
		}
		if !slices.Equal(got, strings.Fields(tt.want)) || next != tt.next || !errors.Is(err, tt.err) {
			t.Errorf("%s: got chunks %q, next %d, error %v", name, got, next, err)
		}
	}
}

// TestWritesThatAreNone are refused before anything is read.
func TestWritesThatAreNone(t *testing.T) {
	t.Parallel()
	one := [][]byte{[]byte("1")}
	for name, w := range map[string]StreamWrite{
		"neither chunks nor an end": {Stream: "s"},
		"too many chunks":           {Stream: "s", Chunks: slices.Repeat(one, MaxWrite+1)},
		"a chunk that is too large": {Stream: "s", Chunks: [][]byte{make([]byte, MaxChunk+1)}},
		"no index":                  {Stream: "s", Chunks: one, From: -1},
		"no name":                   {Chunks: one},
		"a long name":               {Stream: strings.Repeat("s", MaxStreamName+1), Chunks: one},
	} {
		if err := w.validate(); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	most := StreamWrite{Stream: strings.Repeat("s", MaxStreamName), Chunks: slices.Repeat(one, MaxWrite), From: 1 << 53}
	most.Chunks[0] = make([]byte, MaxChunk)
	if err := most.validate(); err != nil {
		t.Errorf("the largest write: %v", err)
	}
}
