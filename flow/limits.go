package flow

import (
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
)

// limitUse is a limit of which each attempt of a step needs a slot; see [entities.LimitUse].
type limitUse struct {
	name        string
	key, tenant *template // nil for none
	cost        int       // 0 for one slot
}

// readLimits reads "limits: NAME", or a list of names and of {name, key, tenant, cost}, and "priority: 10m".
func (r *reader) readLimits(o *object, a *action, u usage) {
	r.readPriority(o, a)
	known := make([]entities.LimitUse, 0, limit.MaxUses)
	for _, n := range o.list("limits", limit.MaxUses) {
		l := r.short(n, "name")
		use := limitUse{name: l.name("name")}
		if l.node.get("name") == nil {
			r.faults.add(n, CodeMissing, `want the "name" of the limit`)
			continue
		}
		use.key, use.tenant, use.cost = l.template("key", u), l.template("tenant", u), l.count("cost", 0, 1, limit.MaxSlots)
		l.end()
		a.limits = append(a.limits, use)
		known = append(known, entities.LimitUse{Name: use.name})
	}
	if err := limit.ValidateUses(known, 0); err != nil && o.node.get("limits") != nil {
		r.faults.add(o.node.get("limits"), CodeType, "%v", err)
	}
}

// readPriority reads by how much attempts go before others that wait for the same slots.
func (r *reader) readPriority(o *object, a *action) {
	n := o.get("priority")
	if n == nil {
		return
	}
	var err error
	if a.priority, err = time.ParseDuration(n.text); n.kind != kindText || err != nil ||
		limit.ValidateUses(nil, a.priority) != nil {
		r.faults.add(n, CodeType, `want a duration from "-1h" to "1h"`)
	}
	if o.node.get("limits") == nil {
		r.faults.add(n, CodeMissing, `a priority needs "limits": it says who gets their slots first`)
	}
}

// limitsOf returns the limits of which each attempt of a step needs a slot.
func (a *action) limitsOf(where *stepScope) ([]entities.LimitUse, error) {
	var uses []entities.LimitUse
	for _, l := range a.limits {
		use := entities.LimitUse{Name: l.name, Cost: l.cost}
		var err error
		if use.Key, err = l.key.plain(where); err == nil {
			use.Tenant, err = l.tenant.plain(where)
		}
		if err != nil {
			return nil, fmt.Errorf("limit %s: %w", l.name, err)
		}
		uses = append(uses, use)
	}
	return uses, limit.ValidateUses(uses, 0)
}

// plain evaluates a template as a text, which is empty if there is none.
func (t *template) plain(where *stepScope) (string, error) {
	if t == nil {
		return "", nil
	}
	value, err := t.json(where)
	return plain(value), err
}
