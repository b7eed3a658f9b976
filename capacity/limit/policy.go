package limit

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// Policy names the limits of a workflow's runs and of their steps, for workflows whose starts do not name them: the
// Workflow SDK's, for
// example. It adds to the limits that a start names itself; of two uses of one limit, the start's counts.
type Policy struct {
	Project  entities.Project
	Workflow string
	Limits   []PolicyUse
	// Steps has the limits of the workflow's steps, by their names. They count for the steps that the server calls.
	Steps map[string][]PolicyUse
	// Priority is that of the runs whose start names none, and of the steps.
	Priority  time.Duration
	CreatedAt time.Time
	UpdatedAt time.Time
}

// PolicyUse names a limit, with expressions for its key and its tenant. An expression is a subset of CEL: a text in
// single or double quotes, key for the run's unique key, workflow for its workflow, or attributes.NAME or
// attributes["NAME"] for an attribute that it starts with. An empty one stands for the empty text.
type PolicyUse struct {
	Name   string `json:"name"`
	Key    string `json:"key,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	Cost   int    `json:"cost,omitempty"`
}

// maxSteps is how many steps a policy may have limits for.
const maxSteps = 100

// Subject has the fields of a run that expressions can read.
type Subject struct {
	Workflow, UniqueKey string
	Attributes          map[string]string
}

// Validate validates the policy, except that it does not know which limits there are. It fails with
// [entities.ErrInvalid].
func (p Policy) Validate() error {
	if err := entities.ValidateWorkflowName("workflow", p.Workflow); err != nil {
		return err
	}
	if len(p.Limits)+len(p.Steps) == 0 {
		return entities.Invalid("the policy names no limit: delete it instead")
	}
	if n := len(p.Steps); n > maxSteps {
		return entities.Invalid("the policy has limits for %d steps; the most is %d", n, maxSteps)
	}
	for step, uses := range p.Steps {
		if err := entities.ValidateName("step", step); err != nil {
			return err
		}
		if len(uses) == 0 {
			return entities.Invalid("the policy names no limit for step %s", step)
		}
		if err := validatePolicyUses(uses, p.Priority); err != nil {
			return err
		}
	}
	return validatePolicyUses(p.Limits, p.Priority)
}

// all returns the limits of the runs and of all steps, without keys and tenants.
func (p Policy) all() (uses []entities.LimitUse) {
	for _, list := range append(slices.Collect(maps.Values(p.Steps)), p.Limits) {
		for _, u := range list {
			uses = append(uses, entities.LimitUse{Name: u.Name, Cost: u.Cost})
		}
	}
	return uses
}

func validatePolicyUses(list []PolicyUse, priority time.Duration) error {
	uses := make([]entities.LimitUse, 0, len(list))
	for _, u := range list {
		for what, expression := range map[string]string{"key": u.Key, "tenant": u.Tenant} {
			if _, err := parse(expression); err != nil {
				return entities.Invalid("%s of limit %s: %s", what, u.Name, err)
			}
		}
		uses = append(uses, entities.LimitUse{Name: u.Name, Cost: u.Cost})
	}
	return ValidateUses(uses, priority)
}

// Uses returns the limits that the policy gives a run, besides those it has. It fails with [entities.ErrInvalid] if an
// expression has no value: a key is never empty by accident.
func (p Policy) Uses(s Subject, have []entities.LimitUse) ([]entities.LimitUse, error) {
	uses, err := p.evaluate(p.Limits, s, have)
	return Join(have, uses), err
}

// StepLimits returns the limits that the policy gives the steps of a run. It fails as [Policy.Uses] does.
func (p Policy) StepLimits(s Subject) ([]entities.StepLimits, error) {
	var all []entities.StepLimits
	for _, step := range slices.Sorted(maps.Keys(p.Steps)) {
		uses, err := p.evaluate(p.Steps[step], s, nil)
		if err != nil {
			return nil, err
		}
		if err := ValidateUses(uses, p.Priority); err != nil {
			return nil, entities.Invalid("the policy of workflow %s: step %s: %s", p.Workflow, step, err)
		}
		all = append(all, entities.StepLimits{Step: step, Limits: uses, PriorityMS: p.Priority.Milliseconds()})
	}
	return all, nil
}

// Join returns the uses with those of the others whose limits they do not name.
func Join(uses, others []entities.LimitUse) []entities.LimitUse {
	joined := uses[:len(uses):len(uses)]
	for _, u := range others {
		if !named(uses, u.Name) {
			joined = append(joined, u)
		}
	}
	return joined
}

// evaluate returns the uses of the list, except those of limits that are named already.
func (p Policy) evaluate(list []PolicyUse, s Subject, have []entities.LimitUse) ([]entities.LimitUse, error) {
	var uses []entities.LimitUse
	for _, u := range list {
		if named(have, u.Name) {
			continue
		}
		use := entities.LimitUse{Name: u.Name, Cost: u.Cost}
		for into, expression := range map[*string]string{&use.Key: u.Key, &use.Tenant: u.Tenant} {
			value, err := evaluate(expression, s)
			if err != nil {
				return nil, entities.Invalid("the policy of workflow %s: limit %s: %s", p.Workflow, u.Name, err)
			}
			*into = value
		}
		uses = append(uses, use)
	}
	return uses, nil
}

func named(uses []entities.LimitUse, name string) bool {
	for _, u := range uses {
		if u.Name == name {
			return true
		}
	}
	return false
}

func evaluate(expression string, s Subject) (string, error) {
	get, err := parse(expression)
	if err != nil {
		return "", err
	}
	return get(s)
}

// parse compiles an expression; see [PolicyUse].
func parse(expression string) (func(Subject) (string, error), error) {
	if text, ok := quoted(expression); ok || expression == "" {
		return func(Subject) (string, error) { return text, nil }, nil
	}
	switch name, ok := attribute(expression); {
	case ok:
		return func(s Subject) (string, error) { return present("attribute "+name, s.Attributes[name]) }, nil
	case expression == "key":
		return func(s Subject) (string, error) { return present("key", s.UniqueKey) }, nil
	case expression == "workflow":
		return func(s Subject) (string, error) { return s.Workflow, nil }, nil
	default:
		return nil, entities.Invalid("expression %q is none of key, workflow, attributes.NAME and a quoted text", expression)
	}
}

func present(what, value string) (string, error) {
	if value == "" {
		return "", entities.Invalid("the run starts without the %s, which the limit's key needs", what)
	}
	return value, nil
}

// quoted returns the text between quotes, in which there are no escapes.
func quoted(s string) (string, bool) {
	if len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '\'' && s[0] != '"' {
		return "", false
	}
	text := s[1 : len(s)-1]
	return text, !strings.ContainsAny(text, `\`+s[:1])
}

// attribute returns the name in attributes.NAME or attributes["NAME"].
func attribute(s string) (string, bool) {
	rest, ok := strings.CutPrefix(s, "attributes")
	if !ok || rest == "" {
		return "", false
	}
	if name, ok := strings.CutPrefix(rest, "."); ok {
		return name, isIdentifier(name)
	}
	name, ok := quoted(strings.TrimSuffix(strings.TrimPrefix(rest, "["), "]"))
	return name, ok && rest[0] == '[' && rest[len(rest)-1] == ']' && name != ""
}

func isIdentifier(s string) bool {
	for i, c := range s {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
