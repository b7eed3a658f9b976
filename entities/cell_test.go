package entities

import (
	"errors"
	"strings"
	"testing"
)

func TestCells(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		prefix, text string
		cell         Cell
		rest         string
	}{
		{"sw_", "sw_eu1_abc", "eu1", "sw_abc"},
		{"sw_", "sw_abc", "", "sw_abc"},
		{"sw_", "sw_eu1_", "eu1", "sw_"},
		{"sw_", "sw_EU_abc", "", "sw_EU_abc"},
		{"sw_", "sw_1eu_abc", "", "sw_1eu_abc"},
		{"sw_", "sw__abc", "", "sw__abc"},
		{"sw_", "other", "", "other"},
		{"sw_", "", "", ""},
		{"swct_", "swct_1700000000.eyJ_a_b", "", "swct_1700000000.eyJ_a_b"}, // a token without a cell
		{"swct_", "swct_us1_1700000000.eyJ_a_b", "us1", "swct_1700000000.eyJ_a_b"},
		{"sw_", "sw_abcdefghijklmnopq_x", "", "sw_abcdefghijklmnopq_x"}, // 17 letters
	} {
		if cell, rest := CutCell(tt.prefix, tt.text); cell != tt.cell || rest != tt.rest {
			t.Errorf("CutCell(%q, %q) = %q, %q; want %q, %q", tt.prefix, tt.text, cell, rest, tt.cell, tt.rest)
		}
	}
	for _, valid := range []Cell{"", "e", "eu1", "abcdefghijklmnop"} {
		if err := ValidateCell(valid); err != nil {
			t.Errorf("%q: %v", valid, err)
		}
		if cell, rest := CutCell("sw_", valid.Prefix("sw_")+"xyz"); cell != valid || rest != "sw_xyz" {
			t.Errorf("%q: a credential is of cell %q, %q", valid, cell, rest)
		}
	}
	for _, invalid := range []Cell{"1", "EU", "eu-1", "eu_1", "eu 1", "abcdefghijklmnopq", "é"} {
		if err := ValidateCell(invalid); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", invalid, err)
		}
	}
}

func TestWrongCellErrorSaysWhere(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]*WrongCellError{
		"the key belongs to cell us1, and the request reached cell eu1:":         {What: "the key", Here: "eu1", In: "us1"},
		"project shop belongs to another cell, and the request reached cell eu1": {What: "project shop", Here: "eu1"},
		"the key belongs to cell us1, and the request reached this server, which has no cell": {
			What: "the key", In: "us1",
		},
	} {
		if !strings.HasPrefix(err.Error(), want) || !errors.Is(err, ErrWrongCell) {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}
