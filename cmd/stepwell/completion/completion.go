// Package completion completes command lines in bash, zsh and fish. The shell scripts call the program itself for the
// candidates, so they never become outdated.
package completion

import (
	"strings"

	"github.com/alecthomas/kong"
)

// Command is the hidden command that the scripts call with the words up to the cursor.
const Command = "__complete"

// Scripts are the completion scripts by shell.
var Scripts = map[string]string{
	"bash": `_stepwell() {
	local IFS=$'\n'
	COMPREPLY=($("$1" ` + Command + ` -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
	COMPREPLY=("${COMPREPLY[@]%%$'\t'*}")
}
complete -o default -F _stepwell stepwell
`,
	"zsh": `#compdef stepwell
_stepwell() {
	local -a found
	found=(${(f)"$("$words[1]" ` + Command + ` -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
	found=("${(@)found/$'\t'/:}")
	if (( $#found )); then
		_describe stepwell found
	else
		_files
	fi
}
compdef _stepwell stepwell
`,
	"fish": `function __stepwell_complete
	set -l words (commandline -opc)
	$words[1] ` + Command + ` -- $words[2..-1] (commandline -ct) 2>/dev/null
end
complete -c stepwell -f -a '(__stepwell_complete)'
complete -c stepwell -n 'test -z (__stepwell_complete | string collect)' -F
`,
}

// Candidate is a completion of a word, with its help.
type Candidate struct{ Word, Help string }

// Candidates returns the completions of the last word, which may be empty. It returns none for free text such as a
// file name.
func Candidates(app *kong.Application, words []string) []Candidate {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	p := parser{node: app.Node}
	for _, w := range words[:len(words)-1] {
		p.consume(w)
	}
	if p.pending != nil {
		return withPrefix(enumValues(p.pending.Value), strings.TrimPrefix(last, "="))
	}
	name, _, hasValue := strings.Cut(last, "=")
	switch flag := p.flag(name); {
	case hasValue && flag != nil:
		list := enumValues(flag.Value)
		for i := range list {
			list[i].Word = name + "=" + list[i].Word
		}
		return withPrefix(list, last)
	case strings.HasPrefix(last, "-") && !p.onlyArgs:
		return withPrefix(p.flags(), last)
	default:
		return withPrefix(p.words(), last)
	}
}

// parser is the state after the words so far. kong's own parser rejects incomplete command lines.
type parser struct {
	node     *kong.Node
	args     int        // number of positional arguments consumed
	pending  *kong.Flag // the flag that the next word is the value of, or nil
	onlyArgs bool       // after "--"
}

func (p *parser) consume(word string) {
	switch {
	case p.pending != nil:
		if word != "=" { // bash splits --flag=value into three words
			p.pending = nil
		}
	case word == "--":
		p.onlyArgs = true
	case strings.HasPrefix(word, "-") && !p.onlyArgs:
		if flag := p.flag(word); flag != nil && !flag.IsBool() {
			p.pending = flag
		}
	default:
		for _, child := range p.node.Children {
			if child.Name == word {
				p.node = child
				return
			}
		}
		p.args++
	}
}

// flag returns the flag named by a word such as --all or -f, or nil.
func (p *parser) flag(word string) *kong.Flag {
	for _, group := range p.node.AllFlags(true) {
		for _, f := range group {
			if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

func (p *parser) flags() (list []Candidate) {
	for _, group := range p.node.AllFlags(true) {
		for _, f := range group {
			list = append(list, Candidate{"--" + f.Name, f.Help})
		}
	}
	return list
}

// words returns the commands and the enumerated arguments that may come next.
func (p *parser) words() (list []Candidate) {
	for _, child := range p.node.Children {
		if !child.Hidden {
			list = append(list, Candidate{child.Name, child.Help})
		}
	}
	if p.args < len(p.node.Positional) {
		list = append(list, enumValues(p.node.Positional[p.args])...)
	}
	return list
}

// enumValues returns the values of an enumerated flag or argument.
func enumValues(v *kong.Value) (list []Candidate) {
	for _, word := range v.EnumSlice() {
		if word != "" {
			list = append(list, Candidate{Word: word})
		}
	}
	return list
}

func withPrefix(list []Candidate, prefix string) (found []Candidate) {
	for _, c := range list {
		if strings.HasPrefix(c.Word, prefix) {
			found = append(found, c)
		}
	}
	return found
}
