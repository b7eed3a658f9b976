// Package completion completes command lines in bash, zsh and fish. The scripts for the shells are a few lines that ask
// the command itself what may come next, so they never fall behind it. It imports nothing of ours.
package completion

import (
	"strings"

	"github.com/alecthomas/kong"
)

// Command is the name of the hidden command that the scripts call, with the words up to the cursor.
const Command = "__complete"

var scripts = map[string]string{
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

// Script is what a shell reads to complete the command; false for an unknown shell.
func Script(shell string) (string, bool) {
	s, ok := scripts[shell]
	return s, ok
}

// Candidate is a word that may stand at the cursor, and what it means.
type Candidate struct{ Word, Help string }

// Candidates are what may stand in place of the last of the words, which may be empty. There are none where anything
// may stand, such as the name of a file.
func Candidates(app *kong.Application, words []string) []Candidate {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	at := place{node: app.Node}
	for _, w := range words[:len(words)-1] {
		at.pass(w)
	}
	if at.value != nil {
		return matching(values(at.value.Value), strings.TrimPrefix(last, "="))
	}
	name, _, hasValue := strings.Cut(last, "=")
	switch flag := at.flag(name); {
	case hasValue && flag != nil:
		list := values(flag.Value)
		for i := range list {
			list[i].Word = name + "=" + list[i].Word
		}
		return matching(list, last)
	case strings.HasPrefix(last, "-") && !at.plain:
		return matching(at.flags(), last)
	default:
		return matching(at.words(), last)
	}
}

// place is how far a command line has come.
type place struct {
	node  *kong.Node
	args  int        // how many arguments the node has got
	value *kong.Flag // which flag the next word is the value of
	plain bool       // whether no more flags are taken for such
}

func (p *place) pass(word string) {
	switch {
	case p.value != nil:
		if word != "=" { // which bash makes a word of its own
			p.value = nil
		}
	case word == "--":
		p.plain = true
	case strings.HasPrefix(word, "-") && !p.plain:
		if flag := p.flag(word); flag != nil && !flag.IsBool() {
			p.value = flag
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

// flag is the flag that a word without "=" names; nil if there is none.
func (p *place) flag(word string) *kong.Flag {
	for _, group := range p.node.AllFlags(true) {
		for _, f := range group {
			if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

func (p *place) flags() (list []Candidate) {
	for _, group := range p.node.AllFlags(true) {
		for _, f := range group {
			list = append(list, Candidate{"--" + f.Name, f.Help})
		}
	}
	return list
}

// words are the commands or arguments that may come next.
func (p *place) words() (list []Candidate) {
	for _, child := range p.node.Children {
		if !child.Hidden {
			list = append(list, Candidate{child.Name, child.Help})
		}
	}
	if p.args < len(p.node.Positional) {
		list = append(list, values(p.node.Positional[p.args])...)
	}
	return list
}

// values are those that a flag or argument may have, if they are few.
func values(v *kong.Value) (list []Candidate) {
	for _, word := range v.EnumSlice() {
		if word != "" {
			list = append(list, Candidate{Word: word})
		}
	}
	return list
}

func matching(list []Candidate, prefix string) (found []Candidate) {
	for _, c := range list {
		if strings.HasPrefix(c.Word, prefix) {
			found = append(found, c)
		}
	}
	return found
}
