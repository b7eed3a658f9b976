package entities

import (
	"regexp"
	"strings"
)

// sdkName matches the names of the Workflow SDK: what it is, its module and the function in it, such as
// step//./workflows/order//chargeCard, with a module that is a file or a package with its version.
var sdkName = regexp.MustCompile(`^(?:workflow|step|class)//(.+?)//(.+)$`)

// Title returns what the author of a workflow or step calls it, for people: of a name of the Workflow SDK the function,
// such as chargeCard, or the end of its module if the function is the default one. Other names are returned unchanged.
// The dashboard has the same rule for its links, filters and addresses; testdata/titles.json tests both.
func Title(name string) string {
	if rest, ok := strings.CutPrefix(name, "__builtin_"); ok && rest != "" {
		return rest
	}
	parts := sdkName.FindStringSubmatch(name)
	if parts == nil {
		return name
	}
	module, function := parts[1], parts[2]
	if function != "default" && function != "__default" {
		return function
	}
	last := module[strings.LastIndexByte(module, '/')+1:]
	file, _, _ := strings.Cut(last, "@")
	return file
}

// sdkID matches the IDs that the Workflow SDK gives its steps, hooks and waits.
var sdkID = regexp.MustCompile(`^(?:step|hook|wait)_[0-9A-HJKMNP-TV-Z]{26}$`)

// IsSDKID reports whether the Workflow SDK made an ID of a step, hook or wait, which then says nothing to its author.
func IsSDKID[T ~string](id T) bool { return sdkID.MatchString(string(id)) }
