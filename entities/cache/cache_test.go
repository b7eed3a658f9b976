package cache

import (
	"slices"
	"testing"
)

// TestBounds keeps what was used last within both limits.
func TestBounds(t *testing.T) {
	t.Parallel()
	c := New(3, 100, func(_ string, bytes int) int { return bytes })
	for _, add := range []struct {
		key   string
		bytes int
		want  []string
	}{
		{"a", 10, []string{"a"}},
		{"b", 20, []string{"a", "b"}},
		{"c", 30, []string{"a", "b", "c"}},
		{"d", 40, []string{"b", "c", "d"}}, // three values
		{"e", 50, []string{"d", "e"}},      // 100 bytes
		{"e", 1, []string{"d", "e"}},       // it has a value
		{"f", 101, nil},
		{"g", 100, []string{"g"}},
	} {
		c.Add(add.key, add.bytes)
		want := 0
		got, bytes := c.Contents()
		for _, key := range got {
			size, _ := c.lru.Peek(key)
			want += size
		}
		if !slices.Equal(got, add.want) || bytes != want {
			t.Errorf("%s: keeps %v of %d bytes, counted as %d; want %v", add.key, got, want, bytes, add.want)
		}
	}
}

func TestUseKeepsAValue(t *testing.T) {
	t.Parallel()
	c := New(2, 100, func(string, int) int { return 1 })
	c.Add("a", 1)
	c.Add("b", 2)
	if got, ok := c.Get("a"); !ok || got != 1 {
		t.Fatalf("got %d, %v", got, ok)
	}
	c.Add("c", 3)
	if _, ok := c.Get("b"); ok {
		t.Error("b is kept, though a was used after it")
	}
	if _, ok := c.Get("a"); !ok {
		t.Error("a is not kept")
	}
}
