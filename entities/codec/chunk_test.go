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
		"Most":       {strings.Repeat("\x00\x00\x00\x01x", maxChunks), slices.Repeat([]string{"x"}, maxChunks)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chunks, err := ReadChunks(strings.NewReader(c.in))
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
		in   string
		kind error
	}{
		"CutLength": {"\x00\x00\x00", ErrMalformed},
		"CutChunk":  {"\x00\x00\x00\x02a", ErrMalformed},
		"NoChunk":   {"\x00\x00\x00\x02", ErrMalformed},
		"TooMany":   {strings.Repeat("\x00\x00\x00\x01x", maxChunks+1), ErrTooLarge},
		"TooLong":   {"\x00\x00\x00\x02ab\x07\xff\xff\xff", ErrTooLarge},
		"Announced": {"\xff\xff\xff\xff", ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := ReadChunks(strings.NewReader(c.in)); !errors.Is(err, c.kind) || got != nil {
				t.Errorf("got %q, error %v, want %v", got, err, c.kind)
			}
		})
	}
}
