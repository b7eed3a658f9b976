package pg

import "testing"

// TestRenumber: only parameters have numbers. A $ of a pattern stays, or the pattern would match nothing.
func TestRenumber(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sql    string
		offset int
		want   string
	}{
		"parameters":        {`SELECT $1::text, $12`, 8, `SELECT $9::text, $20`},
		"none before":       {`SELECT $1`, 0, `SELECT $1`},
		"end of a pattern":  {`topic ~ '^a(.*)$' AND id = $2`, 8, `topic ~ '^a(.*)$' AND id = $10`},
		"end of the string": {`SELECT $1, '$`, 1, `SELECT $2, '$`},
	} {
		if got := renumber(tt.sql, tt.offset); got != tt.want {
			t.Errorf("%s: got %s, want %s", name, got, tt.want)
		}
	}
}

// TestSizeIsThatOfThePayloads: the group commit tells large statements by it.
func TestSizeIsThatOfThePayloads(t *testing.T) {
	t.Parallel()
	var c Conditional
	c.About(Write{Args: []any{"run", int64(1)}})
	c.Add(Write{Args: []any{make([]byte, 100), nil, 7}})
	c.Add(Write{Args: []any{[][]byte{make([]byte, 20), nil}, []string{"abc", "d"}}})
	if got := c.Size(); got != 3+100+20+4 {
		t.Errorf("got %d bytes, want 127", got)
	}
}
