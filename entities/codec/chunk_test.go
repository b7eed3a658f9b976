package codec

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadChunks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"Protocol":   {string(loadVectors(t).binary(t, "chunks")), []string{"ab", "c"}},
		"Empty":      {"", nil},
		"EmptyChunk": {"\x00\x00\x00\x00\x00\x00\x00\x01a", []string{"", "a"}},
		"Most":       {strings.Repeat("\x00\x00\x00\x01x", DefaultChunks), slices.Repeat([]string{"x"}, DefaultChunks)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chunks, err := ReadChunks(strings.NewReader(c.in), ChunkLimits{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, chunk := range chunks {
				got = append(got, string(chunk))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestReadChunksRejects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in     string
		limits ChunkLimits
		kind   error
	}{
		"CutLength": {"\x00\x00\x00", ChunkLimits{}, ErrMalformed},
		"CutChunk":  {"\x00\x00\x00\x02a", ChunkLimits{}, ErrMalformed},
		"NoChunk":   {"\x00\x00\x00\x02", ChunkLimits{}, ErrMalformed},
		"TooMany":   {strings.Repeat("\x00\x00\x00\x01x", DefaultChunks+1), ChunkLimits{}, ErrTooLarge},
		"TooLong":   {"\x00\x00\x00\x02ab\x00\x00\x00\x02cd", ChunkLimits{Bytes: 3}, ErrTooLarge},
		"Announced": {"\xff\xff\xff\xff", ChunkLimits{}, ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := ReadChunks(strings.NewReader(c.in), c.limits); !errors.Is(err, c.kind) || got != nil {
				t.Errorf("got %q, error %v, want %v", got, err, c.kind)
			}
		})
	}
}
