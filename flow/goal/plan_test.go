package goal

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/flow"
)

func parse(t testing.TB, document string) *Catalog {
	t.Helper()
	c, err := Parse([]byte(document))
	if err != nil {
		t.Fatalf("%v\nin:\n%s", err, document)
	}
	return c
}

// names splits a list of names.
func names(list string) []string { return strings.Fields(list) }

// catalogOf returns a catalog of calls: each line is "step: takes -> gives".
func catalogOf(lines ...string) string {
	text := "catalog: c\ndeployment: d\nattributes: {a: {}, b: {}, c: {}, d: {}}\nsteps:\n"
	for _, line := range lines {
		id, ports, _ := strings.Cut(line, ":")
		takes, gives, _ := strings.Cut(ports, "->")
		object := func(list string) string {
			fields := names(list)
			for i, one := range fields {
				name, settings, _ := strings.Cut(one, "=")
				fields[i] = name + ": {" + strings.ReplaceAll(settings, ":", ": ") + "}"
			}
			return "{" + strings.Join(fields, ", ") + "}"
		}
		gives, cost, _ := strings.Cut(gives, "@")
		text += fmt.Sprintf("  %s: {call: f, takes: %s, gives: %s", id, object(takes), object(gives))
		if cost != "" {
			text += ", cost: " + cost
		}
		text += "}\n"
	}
	return text
}

// TestPlans plans catalogs: which steps, in which waves, and from whom they have what they take.
func TestPlans(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name       string
		lines      []string
		want, have string
		waves      string // waves are divided by |
		spare      string
	}{
		{"a chain", []string{"s: b -> c", "f: a -> b", "other: a -> d"}, "c", "a", "f|s", ""},
		{"what is there is not made", []string{"s: b -> c", "f: a -> b"}, "c", "a b", "s", ""},
		{"a goal that is there", []string{"f: a -> b"}, "b", "b", "", ""},
		{"a step as a goal", []string{"send: b ->", "f: a -> b"}, "send", "a", "f|send", ""},
		{"two goals share a step", []string{"f: a -> b", "s: b -> c", "u: b -> d"}, "c d", "a", "f|s u", ""},
		{"the name decides between equal costs", []string{"z: a -> b", "y: a -> b"}, "b", "a", "y z", "z"},
		{"the lower cost decides", []string{"y: a -> b@5", "z: a -> b@2"}, "b", "a", "y z", "y"},
		{"a provider that cannot run is passed over", []string{"y: d -> b", "z: a -> b"}, "b", "a", "z", ""},
		{
			"a step that gives two things replaces two",
			[]string{"x: a -> b@1", "y: a -> c@9", "both: a -> b c@5", "s: b c -> d"}, "d", "a", "both x y|s", "x y",
		},
		{"some takes all providers", []string{"y: a -> b", "z: a -> b", "s: b=collect:some -> c"}, "c", "a", "y z|s", ""},
		{"together starts all providers", []string{"y: a -> b", "z: a -> b", "s: b=together:true -> c"}, "c", "a", "y z|s", ""},
		{"what is optional is had if it can be", []string{"y: a -> b", "s: b=optional:true -> c"}, "c", "a", "y|s", ""},
		{"what is optional need not be had", []string{"y: d -> b", "s: b=optional:true -> c"}, "c", "a", "s", ""},
		{"none waits for providers", []string{"y: a -> b", "s: b=collect:none -> c"}, "c", "a", "y|s", ""},
		{"steps that need each other have another way", []string{"x: c -> b", "y: b -> c", "z: a -> c@9"}, "b", "a", "z|x", ""},
		{
			"optional ones do not wait for each other",
			[]string{"x: c=optional:true -> b", "y: b=optional:true -> c", "s: b c -> d"}, "d", "", "y|x|s", "",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p, err := parse(t, catalogOf(test.lines...)).Plan(Ask{Want: names(test.want), Have: names(test.have)}, NewBudget())
			if err != nil {
				t.Fatal(err)
			}
			v := p.Preview()
			waves, spare := []string{}, []string{}
			for _, wave := range v.Waves {
				slices.Sort(wave)
				waves = append(waves, strings.Join(wave, " "))
			}
			for _, s := range v.Steps {
				if s.Spare {
					spare = append(spare, s.ID)
				}
			}
			if got := strings.Join(waves, "|"); got != test.waves || strings.Join(spare, " ") != test.spare {
				t.Errorf("got %q with %q to spare, want %q with %q", got, spare, test.waves, test.spare)
			}
			if _, err := flow.Parse(p.Document("")); err != nil {
				t.Errorf("the flow of the plan: %v", err)
			}
		})
	}
}

// TestWhatIsMissing names what would have to be there, with the chain, and why steps are left out.
func TestWhatIsMissing(t *testing.T) {
	t.Parallel()
	c := parse(t, catalogOf("s: b c -> goods", "f: a -> b", "u: d -> c", "v: b -> d", "no: a=collect:none -> c"))
	p, err := c.Plan(Ask{Want: []string{"goods"}}, NewBudget())
	if err != nil {
		t.Fatal(err)
	}
	v := p.Preview()
	if diff := cmp.Diff([]Missing{{"a", names("goods s b f a")}}, v.Missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	var unreached *Unreached
	if err := p.Check(); !errors.As(err, &unreached) || !strings.Contains(err.Error(), "goods needs s needs b needs f needs a") {
		t.Errorf("got %v, want the chain", err)
	}
	p, err = c.Plan(Ask{Want: []string{"goods"}, Have: []string{"a", "c"}}, NewBudget())
	if err != nil {
		t.Fatal(err)
	}
	want := []Excluded{
		{"u", "there", "all that it gives is there"}, {"v", "not_needed", "the goals are reached without it"},
		{"no", "blocked", "it must not have a, which is there"},
	}
	if diff := cmp.Diff(want, p.Preview().Excluded); diff != "" {
		t.Errorf("excluded (-want +got):\n%s", diff)
	}
	for ask, message := range map[*Ask]string{
		{Want: []string{"gods"}}:                                         `do you mean "goods"?`,
		{Want: []string{"goods"}, Have: []string{"x"}}:                   `no attribute "x"`,
		{Want: []string{"goods"}, Have: names("a"), HaveAll: names("a")}: "a is there twice",
		{}: "want 1 to 20",
	} {
		if _, err := c.Plan(*ask, NewBudget()); !errors.Is(err, entities.ErrInvalid) || !strings.Contains(err.Error(), message) {
			t.Errorf("%v: got %v, want %s", ask, err, message)
		}
	}
}

// randomCatalog draws up to 12 steps over 8 attributes.
func randomCatalog(t *rapid.T) string {
	attributes := names("a b c d e f g h")
	lines := []string{}
	for i := range rapid.IntRange(1, 12).Draw(t, "steps") {
		takes, gives := "", ""
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(attributes), 0, 3, rapid.ID[string]).Draw(t, "takes") {
			takes += " " + name + "=" + rapid.SampledFrom([]string{
				"", "", "", "collect:some", "collect:all", "collect:last", "collect:none", "optional:true", "together:true",
			}).Draw(t, "mode")
		}
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(attributes), 1, 2, rapid.ID[string]).Draw(t, "gives") {
			if !strings.Contains(takes, " "+name+"=") {
				gives += " " + name
			}
		}
		lines = append(lines, fmt.Sprintf("s%d:%s ->%s@%d", i, takes, gives, rapid.IntRange(1, 3).Draw(t, "cost")))
	}
	return strings.Replace(catalogOf(lines...), "d: {}}", "d: {}, e: {}, f: {}, g: {}, h: {}}", 1)
}

// suffices reports whether the steps lead to the goals, by the plan's own words: it goes through the steps of a preview,
// and knows nothing of how plans are made.
func suffices(v Preview, without func(id string) bool) bool {
	had, byID := map[string]bool{}, map[string]PreviewStep{}
	for _, s := range v.Steps {
		byID[s.ID] = s
	}
	gives := func(id, name string) bool {
		return had[id] && slices.ContainsFunc(byID[id].Gives, func(g PreviewGive) bool { return g.Name == name })
	}
	given := func(name string) bool {
		return slices.ContainsFunc(v.Steps, func(s PreviewStep) bool { return gives(s.ID, name) })
	}
	for moved := true; moved; {
		moved = false
		for _, s := range v.Steps {
			if had[s.ID] || without(s.ID) {
				continue
			}
			ready := true
			for _, take := range s.Takes {
				switch sources := slices.DeleteFunc(slices.Clone(take.From), func(id string) bool { return id == haveID || byID[id].Spare }); {
				case take.Collect != "" || take.Optional || take.Together:
					ready = ready && !slices.ContainsFunc(sources, func(id string) bool { return !gives(id, take.Name) })
				case !slices.Contains(take.From, haveID):
					ready = ready && given(take.Name)
				}
			}
			if ready {
				had[s.ID], moved = true, true
			}
		}
	}
	return !slices.ContainsFunc(v.Want, func(name string) bool { return !slices.Contains(v.Have, name) && !given(name) && !had[name] })
}

// TestNoStepOfAPlanCanBeRemoved tries all sets of steps of plans: none but the whole leads to the goals. The plan is the
// same each time, its flow has no faults, and a run in which all steps give what they should reaches the goals with
// exactly the steps of the plan, without the spare ones.
func TestNoStepOfAPlanCanBeRemoved(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		document := randomCatalog(t)
		c, err := Parse([]byte(document))
		if err != nil {
			t.Fatalf("%v\nin:\n%s", err, document)
		}
		known := names("a b c d e f g h")
		ask := Ask{
			Want: rapid.SliceOfNDistinct(rapid.SampledFrom(known), 1, 2, rapid.ID[string]).Draw(t, "want"),
			Have: rapid.SliceOfNDistinct(rapid.SampledFrom(known), 0, 3, rapid.ID[string]).Draw(t, "have"),
		}
		p, err := c.Plan(ask, NewBudget())
		if err != nil {
			t.Fatal(err)
		}
		v := p.Preview()
		if !p.IsReached() {
			if len(v.Steps) > 0 {
				t.Fatalf("the goals are not reached, and the plan has steps: %v", v.Steps)
			}
			return
		}
		var ids []string
		for _, s := range v.Steps {
			if !s.Spare {
				ids = append(ids, s.ID)
			}
		}
		for set := range 1 << len(ids) {
			got := suffices(v, func(id string) bool {
				i := slices.Index(ids, id)
				return i < 0 || set&(1<<i) == 0
			})
			if whole := set == 1<<len(ids)-1; got != whole {
				t.Fatalf("with %b of %v the goals are reached: %v\nin:\n%s%+v", set, ids, got, document, v)
			}
		}
		again, err := c.Plan(ask, NewBudget())
		if err != nil || string(again.Document("")) != string(p.Document("")) {
			t.Fatalf("planned again, it is another plan: %v", err)
		}
		runs(t, p, ids)
	})
}

// runs runs a plan in which all steps give what they should.
func runs(t *rapid.T, p *Plan, ids []string) {
	f, err := flow.Parse(p.Document(""))
	if err != nil {
		t.Fatal(err)
	}
	trial, none := flow.Trial{Input: inputOf(p.Have), Results: map[string]flow.Result{}}, false
	for _, s := range p.Catalog.steps {
		none = none || slices.ContainsFunc(s.takes, func(t take) bool { return t.collect == collectNone })
		output := flow.NewObject(p.root)
		for _, g := range s.gives {
			output.Set(g.name, flow.NewText(p.root, s.id))
		}
		trial.Results[s.id] = flow.Result{Output: output.JSON()}
	}
	got, err := trial.Run(f)
	if err != nil {
		t.Fatal(err)
	}
	if none {
		return // a step that must not have what others give does not run
	}
	var called []string
	for _, e := range got.Events {
		if e.Type == entities.EventStepCreated && slices.Contains(ids, e.CorrelationID) {
			called = append(called, e.CorrelationID)
		}
		if e.Type == entities.EventStepCreated && !slices.Contains(ids, e.CorrelationID) && p.isSpare(e.CorrelationID) && e.Payload != nil {
			t.Fatalf("the spare step %s has begun, and nothing has failed", e.CorrelationID)
		}
	}
	slices.Sort(called)
	slices.Sort(ids)
	if got.Status != entities.RunCompleted || !slices.Equal(called, ids) {
		t.Fatalf("%s: %v was called, want %v: %v", got.Status, called, ids, got.Error)
	}
}

func (p *Plan) isSpare(id string) bool {
	i, ok := p.byID[id]
	return ok && p.spare[i]
}

// inputOf returns the input of a run that has a text for each name.
func inputOf(have []string) []byte {
	fields := make([]string, len(have))
	for i, name := range have {
		fields[i] = fmt.Sprintf("%q:%q", name, name)
	}
	return []byte(`{"have":{` + strings.Join(fields, ",") + `}}`)
}

// layers returns a catalog of steps in layers: each takes all that the layer before gives.
func layers(steps, inLayer, attributes int) string {
	lines := make([]string, 0, steps)
	for i := range steps {
		var takes, gives []string
		for k := range attributes {
			gives = append(gives, fmt.Sprintf("l%d_%d", i/inLayer, k))
			if i >= inLayer {
				takes = append(takes, fmt.Sprintf("l%d_%d", i/inLayer-1, k))
			}
		}
		lines = append(lines, fmt.Sprintf("s%d:%s -> %s", i, strings.Join(takes, " "), strings.Join(gives, " ")))
	}
	return catalogOf(lines...)
}

// TestPlanningEnds plans what has more ways than the budget, and with a budget that others have spent.
func TestPlanningEnds(t *testing.T) {
	t.Parallel()
	b := NewBudget()
	if _, err := parse(t, layers(40, 20, 20)).Plan(Ask{Want: names("l1_0")}, b); !errors.Is(err, ErrTooLarge) {
		t.Errorf("20 ways to each of 20 attributes: got %v, want ErrTooLarge", err)
	}
	small := parse(t, catalogOf("f: a -> b"))
	if _, err := small.Plan(Ask{Want: names("b"), Have: names("a")}, b); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a budget that is spent: got %v, want ErrTooLarge", err)
	}
}

// TestOthersThatGiveTheSameAreNoFault: steps are checked one by one, whoever else gives what they give.
func TestOthersThatGiveTheSameAreNoFault(t *testing.T) {
	t.Parallel()
	parse(t, layers(6, 6, MaxPorts))
}
