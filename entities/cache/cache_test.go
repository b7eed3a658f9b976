package cache

import (
	"slices"
	"testing"
	"time"
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
		{"d", 30, []string{"e", "d"}},      // in place of 40
		{"f", 101, []string{"e", "d"}},     // alone too large
		{"e", 101, []string{"d"}},          // and in place of 50
		{"g", 100, []string{"g"}},
	} {
		c.Put(add.key, add.bytes)
		want := 0
		got, bytes := c.Contents()
		for _, key := range got {
			size, _ := c.Peek(key)
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
	c.Put("a", 1)
	c.Put("b", 2)
	if got, ok := c.Get("a"); !ok || got != 1 {
		t.Fatalf("got %d, %v", got, ok)
	}
	c.Put("c", 3)
	if _, ok := c.Get("b"); ok {
		t.Error("b is kept, though a was used after it")
	}
	if _, ok := c.Get("a"); !ok {
		t.Error("a is not kept")
	}
}

// TestOldValuesGo when another one is put, unless they are used more recently than one that is not old.
func TestOldValuesGo(t *testing.T) {
	t.Parallel()
	c := New(10, 100, func(string, int) int { return 1 })
	start := time.Now()
	put := func(key string, after time.Duration, want ...string) {
		t.Helper()
		at := start.Add(after)
		c.PutAt(key, 1, at, at.Add(-time.Minute))
		if got, bytes := c.Contents(); !slices.Equal(got, want) || bytes != len(want) {
			t.Errorf("%s: keeps %v of %d bytes, want %v", key, got, bytes, want)
		}
	}
	put("a", 0, "a")
	put("b", time.Minute, "a", "b")
	put("c", time.Minute+1, "b", "c")
	c.Get("b")
	put("d", 2*time.Minute+1, "c", "b", "d")
	put("e", 3*time.Minute+2, "e")
}

// TestTakenValuesAreGone, and only those who have them use them.
func TestTakenValuesAreGone(t *testing.T) {
	t.Parallel()
	c := New(2, 100, func(string, *int) int { return 40 })
	c.Put("a", new(int))
	c.Put("b", new(int))
	for range 3 {
		c.With("a", func(n *int) { *n++ })
	}
	c.With("none", func(*int) { t.Error("there is no such value") })
	got, ok := c.Take("a")
	if !ok || *got != 3 {
		t.Fatalf("got %v, %v, want 3", got, ok)
	}
	if got, ok := c.Take("a"); ok || got != nil {
		t.Errorf("it is still there: %v", got)
	}
	c.Remove("b")
	if keys, bytes := c.Contents(); len(keys) != 0 || bytes != 0 {
		t.Errorf("keeps %v of %d bytes, want nothing", keys, bytes)
	}
}
