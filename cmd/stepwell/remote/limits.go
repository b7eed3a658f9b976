package remote

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type limitsCmd struct {
	List   listCmd[limitRow, none]     `cmd:"" at:"limits" help:"List the limits."`
	Show   objectCmd[limitRow, named]  `cmd:"" at:"limits/*" help:"Show a limit."`
	Set    setLimitCmd                 `cmd:"" help:"Create a limit, or change what the flags say."`
	Keys   listCmd[limitKeyRow, named] `cmd:"" at:"limits/*/keys" help:"List the keys of a limit that something holds or awaits."`
	Slots  listSlotsCmd                `cmd:"" help:"List who holds the slots of a key, and who waits."`
	Remove removeCmd[limitNames]       `cmd:"" at:"DELETE limits/*" help:"Delete limits."`
}

type limitNames struct {
	names
	Force bool `help:"Delete it even if in use; what holds it or waits for it goes on without it."`
}

func rateText(r *api.Rate) string {
	switch {
	case r == nil:
		return ""
	case r.Burst > 1:
		return fmt.Sprintf("%d/%s, %d at once", r.Limit, r.Per, r.Burst)
	default:
		return fmt.Sprintf("%d/%s", r.Limit, r.Per)
	}
}

// bound prints how many slots there are.
func bound(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

type limitRow api.Limit

func (l limitRow) columns() []field {
	state := "active"
	if l.Paused {
		state = "paused"
	}
	return []field{
		{"name", l.Name}, {"state", state}, {"per key", bound(l.PerKey)}, {"total", bound(l.Total)},
		{"rate", rateText(l.Rate)}, {"held", orZero(l.Held)}, {"waiting", orZero(l.Waiting)}, {"if full", l.OnFull},
	}
}

func (l limitRow) details() []field {
	return []field{{"fair", l.Fair}, {"created", l.CreatedAt}, {"updated", l.UpdatedAt}}
}

type setLimitCmd struct {
	named
	limitSettings
}

// limitSettings are the settings of a limit; those that are missing stay as they are.
type limitSettings struct {
	PerKey *int64 `placeholder:"N" help:"The most at once per key; 0 for no limit."`
	Total  *int64 `placeholder:"N" help:"The most at once over all keys; 0 for no limit."`
	Rate   string `placeholder:"N/TIME" help:"The most starts per key in a time, such as 100/1m; 0 for no limit."`
	Burst  *int64 `placeholder:"N" help:"The burst: how many may begin at once; default is 1."`
	Fair   *bool  `negatable:"" help:"Tenants take turns at the slots."`
	OnFull string `enum:"${fulls}" default:"" placeholder:"HOW" help:"${full}"`
	Paused *bool  `negatable:"" help:"Nothing gets a slot; what has one continues."`
}

// Run changes what the flags say. The limit keeps its other settings.
func (c setLimitCmd) Run(ctx context.Context, s *Session) error {
	spec, err := c.changed(ctx, s, c.Name)
	if err != nil {
		return err
	}
	return s.change(ctx, http.MethodPut, path("limits", c.Name), spec, "set limit %s", c.Name)
}

// changed returns the settings of a limit, which need not exist, with what the flags change.
func (c limitSettings) changed(ctx context.Context, s *Session, name string) (spec api.LimitSpec, err error) {
	_, err = s.client.get(ctx, path("limits", name), nil, &spec)
	if err != nil && ExitCode(err) != ExitNotFound {
		return spec, err
	}
	if spec.Rate != nil {
		spec.Rate.Sustained = 0 // follows from the rest
	}
	return spec, c.change(&spec)
}

// change sets what the flags say.
func (c limitSettings) change(spec *api.LimitSpec) error {
	setIfGiven(&spec.PerKey, c.PerKey)
	setIfGiven(&spec.Total, c.Total)
	setIfGiven(&spec.Fair, c.Fair)
	setIfGiven(&spec.Paused, c.Paused)
	if c.OnFull != "" {
		spec.OnFull = c.OnFull
	}
	switch c.Rate {
	case "":
	case "0":
		spec.Rate = nil
	default:
		n, per, _ := strings.Cut(c.Rate, "/")
		limit, err := strconv.ParseInt(n, 10, 64)
		if err != nil || per == "" {
			return usageErrorf("--rate %s is not a number and a time, such as 100/1m", c.Rate)
		}
		spec.Rate = &api.Rate{Limit: limit, Per: per}
	}
	if c.Burst == nil {
		return nil
	}
	if spec.Rate == nil {
		return usageErrorf("--burst is part of a rate: give --rate")
	}
	spec.Rate.Burst = *c.Burst
	return nil
}

func setIfGiven[T any](into, flag *T) {
	if flag != nil {
		*into = *flag
	}
}

type limitKeyRow api.LimitKey

func (k limitKeyRow) columns() []field {
	return []field{
		{"key", strconv.Quote(k.Key)}, {"held", k.Held}, {"waiting", k.Waiting}, {"waiting since", k.WaitingSince},
	}
}

// permit is what holds or awaits a slot; slot says which.
type permit struct {
	api.Permit

	slot string
}

func permitColumns(p permit) []field {
	return []field{
		{"slot", p.slot}, {"run", p.RunID}, {"step", p.StepID}, {"since", p.Since}, {"cost", p.Cost}, {"tenant", p.Tenant},
	}
}

type listSlotsCmd struct {
	named
	Key   string `arg:"" optional:"" help:"The key; default is the empty one."`
	Limit int    `default:"100" help:"List at most so many that hold a slot, and that wait."`
}

// Run lists who holds the slots, longest first, and who waits, in order.
func (c listSlotsCmd) Run(ctx context.Context, s *Session) error {
	var slots api.Slots
	query := url.Values{"limit": {strconv.Itoa(c.Limit)}}
	if c.Key != "" {
		query.Set("key", c.Key)
	}
	raw, err := s.client.get(ctx, path("limits", c.Name, "slots"), query, &slots)
	if err != nil {
		return err
	}
	if s.json {
		return s.printJSON(raw)
	}
	if c.Key == "" && len(slots.Held)+len(slots.Waiting) == 0 {
		s.note("nothing holds or awaits a slot without a key; \"stepwell limits keys %s\" lists the keys to give", c.Name)
	}
	var permits []permit
	for _, p := range slots.Held {
		permits = append(permits, permit{p, "held"})
	}
	for i, p := range slots.Waiting {
		permits = append(permits, permit{p, fmt.Sprintf("waits, no. %d", i+1)})
	}
	return printItems(s, permitColumns, permits)
}

type policiesCmd struct {
	List   listCmd[policyRow, none] `cmd:"" at:"policies" help:"List the policies."`
	Set    setPolicyCmd             `cmd:"" help:"Create or replace the policy of a workflow."`
	Remove removeCmd[workflowNames] `cmd:"" at:"DELETE policies/*" help:"Delete the policies of workflows; their runs keep their limits."`
}

type workflowNames struct {
	Workflows []string `arg:"" name:"workflow" help:"The workflow; may be repeated."`
}

// useText prints the use of a limit as --limit takes it, and what else there is.
func useText(u api.PolicyUse) string {
	text := u.Name
	if u.Key != "" {
		text += "=" + u.Key
	}
	if u.Tenant != "" {
		text += " by " + u.Tenant
	}
	if u.Cost > 1 {
		text += fmt.Sprintf(" x%d", u.Cost)
	}
	return text
}

type policyRow api.Policy

func (p policyRow) columns() []field {
	var uses []string
	for _, u := range p.Limits {
		uses = append(uses, useText(u))
	}
	for _, step := range slices.Sorted(maps.Keys(p.Steps)) {
		for _, u := range p.Steps[step] {
			uses = append(uses, "step "+step+": "+useText(u))
		}
	}
	return []field{{"workflow", p.Workflow}, {"limits", uses}, {"priority", p.Priority}, {"updated", p.UpdatedAt}}
}

// limitFlags are the flags that give runs limits and a priority.
type limitFlags struct {
	Limit    []string          `field:"-" sep:"none" placeholder:"NAME[=KEY]" help:"${limitUse}"`
	Tenant   map[string]string `field:"-" mapsep:"none" placeholder:"NAME=TENANT" help:"${limitTenant}"`
	Cost     map[string]int64  `field:"-" mapsep:"none" placeholder:"NAME=N" help:"How many slots of a limit it takes."`
	Priority string            `placeholder:"TIME" help:"Priority as a time offset, from -1h to 1h."`
}

// addLimits adds the limits to the body of a request.
func (f limitFlags) addLimits(body jsonBody) jsonBody {
	var uses []api.PolicyUse
	for _, text := range f.Limit {
		uses = append(uses, f.use(text))
	}
	if len(uses) > 0 {
		body["limits"] = uses
	}
	return body
}

// use returns the limit that NAME or NAME=KEY names.
func (f limitFlags) use(text string) api.PolicyUse {
	name, key, _ := strings.Cut(text, "=")
	return api.PolicyUse{Name: name, Key: key, Tenant: f.Tenant[name], Cost: f.Cost[name]}
}

type setPolicyCmd struct {
	Workflow string `arg:"" help:"The workflow."`
	limitFlags

	Step []string `sep:"none" placeholder:"STEP=NAME[=KEY]" help:"${policyStep}"`
}

// Run stores the policy.
func (c setPolicyCmd) Run(ctx context.Context, s *Session) error {
	steps := map[string][]api.PolicyUse{}
	for _, text := range c.Step {
		step, use, _ := strings.Cut(text, "=")
		steps[step] = append(steps[step], c.use(use))
	}
	body := c.addLimits(jsonBody{"priority": c.Priority}.omitZero())
	if len(steps) > 0 {
		body["steps"] = steps
	}
	return s.change(ctx, http.MethodPut, path("policies", c.Workflow), body, "set the policy of %s", c.Workflow)
}
