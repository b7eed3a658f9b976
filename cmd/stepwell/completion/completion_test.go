package completion_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/cmd/stepwell/completion"
)

// grammar has one of each kind of command, flag and argument.
type grammar struct {
	URL string `help:"Where."`

	Runs struct {
		Start struct {
			Workflow string `arg:""`
			Wait     bool   `help:"Wait."`
			Mode     string `short:"m" enum:",fast,slow" default:""`
			Secret   string `hidden:""`
		} `cmd:"" help:"Start it."`
		Stop struct {
			How string `arg:"" enum:"now,later"`
		} `cmd:""`
	} `cmd:""`
	Show struct {
		File string `arg:""`
	} `cmd:""`
	Internal struct{} `cmd:"" hidden:""`
}

func TestCandidates(t *testing.T) {
	t.Parallel()
	app := kong.Must(new(grammar))
	for line, want := range map[string]string{ // the last word is at the cursor; _ is an empty word
		"":                             "runs show",
		"_":                            "runs show",
		"r":                            "runs",
		"int":                          "",
		"runs _":                       "start stop",
		"runs sta":                     "start",
		"runs x":                       "",
		"--url http://x runs _":        "start stop",
		"--url=http://x runs _":        "start stop",
		"--url = http://x runs _":      "start stop",
		"--url _":                      "",
		"--url runs _":                 "runs show",
		"-":                            "--help --url",
		"runs start -":                 "--help --mode --url --wait",
		"runs start --w":               "--wait",
		"runs start --mode _":          "fast slow",
		"runs start --mode f":          "fast",
		"runs start --mode =":          "fast slow",
		"runs start --mode = s":        "slow",
		"runs start --mode=s":          "--mode=slow",
		"runs start -m _":              "fast slow",
		"runs start --mode fast --wa":  "--wait",
		"runs start order --wait --mo": "--mode",
		"runs start --wait --mode _":   "fast slow",
		"runs start -- --w":            "",
		"runs start _":                 "",
		"runs stop _":                  "later now",
		"runs stop now _":              "",
		"runs stop --nonsense l":       "later",
		"show _":                       "",
	} {
		words := strings.Fields(line)
		for i := range words {
			words[i] = strings.Trim(words[i], "_")
		}
		var got []string
		for _, c := range completion.Candidates(app.Model, words) {
			got = append(got, c.Word)
		}
		slices.Sort(got)
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
	if got := completion.Candidates(app.Model, []string{"runs", "start"}); len(got) != 1 || got[0].Help != "Start it." {
		t.Errorf("got %+v, want its help", got)
	}
}

func TestScripts(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if s := completion.Scripts[shell]; !strings.Contains(s, completion.Command) {
			t.Errorf("%s: got %q", shell, s)
		}
	}
}
