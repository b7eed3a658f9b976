package entities

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Cell names servers and the one database that they share, among others behind one proxy. It is empty for an
// installation that has only one.
type Cell string

// ErrWrongCell is matched by [*WrongCellError].
var ErrWrongCell = errors.New("wrong cell")

// WrongCellError refuses a request that belongs in another cell than the one that it reached.
type WrongCellError struct {
	// What is in another cell, as the subject of a sentence.
	What string
	// Here is the cell that the request has reached, and In the one to which it belongs; empty if that is unknown.
	Here, In Cell
}

func (e *WrongCellError) Error() string {
	here := "this server, which has no cell"
	if e.Here != "" {
		here = "cell " + string(e.Here)
	}
	in := "another cell"
	if e.In != "" {
		in = "cell " + string(e.In)
	}
	return fmt.Sprintf("%s belongs to %s, and the request reached %s: send it to that cell's address, or mend the"+
		" proxy's map", e.What, in, here)
}

// Is matches [ErrWrongCell].
func (e *WrongCellError) Is(target error) bool { return target == ErrWrongCell }

// Details returns the two cells for clients.
func (e *WrongCellError) Details() map[string]any {
	details := map[string]any{"here": e.Here}
	if e.In != "" {
		details["cell"] = e.In
	}
	return details
}

// cellName is short, and has nothing that ends it in a key, in the name of a cookie or in a proxy's map.
var cellName = regexp.MustCompile(`^[a-z][a-z0-9]{0,15}$`)

// ValidateCell validates the name of a cell: a lower-case letter, and up to 15 letters and digits. Empty is valid. It
// fails with [ErrInvalid].
func ValidateCell(c Cell) error {
	if c != "" && !cellName.MatchString(string(c)) {
		return Invalid("cell %q: want a lower-case letter and then up to 15 letters and digits", string(c))
	}
	return nil
}

// Prefix returns the prefix of credentials that are made in the cell: "sw_" becomes "sw_eu1_". What follows it must not
// look like the name of a cell.
func (c Cell) Prefix(prefix string) string {
	if c == "" {
		return prefix
	}
	return prefix + string(c) + "_"
}

// CutCell returns the cell that follows the prefix of a credential, and the credential as it would be without the
// cell. The cell is empty if there is none.
func CutCell(prefix, text string) (Cell, string) {
	rest, ok := strings.CutPrefix(text, prefix)
	name, rest, cut := strings.Cut(rest, "_")
	if !ok || !cut || !cellName.MatchString(name) {
		return "", text
	}
	return Cell(name), prefix + rest
}
