package pg

import (
	"strconv"
	"strings"
	"sync"
)

// renumbered caches the results of [renumberParameters]. It needs no bound: SQL contains no values, so there are only
// as many entries as pairs of a write and a number of parameters before it.
var renumbered sync.Map // of offsetSQL to string

// offsetSQL is SQL, and how many parameters precede its own.
type offsetSQL struct {
	sql    string
	offset int
}

// renumberParameters returns the SQL with offset added to the number of each parameter, so that $1 becomes $(offset+1).
func renumberParameters(sql string, offset int) string {
	key := offsetSQL{sql, offset}
	if made, ok := renumbered.Load(key); ok {
		return made.(string)
	}
	made, _ := renumbered.LoadOrStore(key, renumber(sql, offset))
	return made.(string)
}

func renumber(sql string, offset int) string {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(sql, "$")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		sql = strings.TrimLeft(after, "0123456789")
		number, _ := strconv.Atoi(after[:len(after)-len(sql)])
		b.WriteString("$" + strconv.Itoa(number+offset))
	}
}
