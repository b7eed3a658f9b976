package pg

import (
	"strconv"
	"strings"
	"sync"
)

// shifted are texts that [shift] has made before. There are as many as pairs of writes that meet in chains, for SQL has
// no values in it.
var shifted sync.Map // of text to string

// text is SQL and how many parameters come before its own.
type text struct {
	sql    string
	before int
}

// shift is SQL with its parameters numbered from n+1 on.
func renumberParameters(sql string, n int) string {
	of := text{sql, n}
	if made, ok := shifted.Load(of); ok {
		return made.(string)
	}
	made, _ := shifted.LoadOrStore(of, renumber(sql, n))
	return made.(string)
}

func renumber(sql string, n int) string {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(sql, "$")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		sql = strings.TrimLeft(after, "0123456789")
		number, _ := strconv.Atoi(after[:len(after)-len(sql)])
		b.WriteString("$" + strconv.Itoa(number+n))
	}
}
