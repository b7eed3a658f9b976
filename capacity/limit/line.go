package limit

// line is the order in which candidates are considered. Those that need no fair limit stand in one queue, by rank.
// Those that need one stand in the queue of their tenant in the first fair limit that they need.
type line struct {
	*granter

	plain []int
	// fair has the queues of the tenants, by limit.
	fair map[string]map[Bucket][]int
}

// line lines the candidates up, which are sorted by rank.
func (g *granter) line() *line {
	l := &line{granter: g, fair: map[string]map[Bucket][]int{}}
	for i, c := range g.Waiting {
		t, ok := g.fairTenantOf(c)
		if !ok {
			l.plain = append(l.plain, i)
			continue
		}
		if l.fair[t.Name] == nil {
			l.fair[t.Name] = map[Bucket][]int{}
		}
		l.fair[t.Name][t] = append(l.fair[t.Name][t], i)
	}
	return l
}

// fairTenantOf returns the tenant in whose queue a candidate stands, and reports whether it needs a fair limit.
func (g *granter) fairTenantOf(c Candidate) (Bucket, bool) {
	for _, u := range c.Uses {
		if g.Limits[u.Name].Fair {
			return tenantOf(u), true
		}
	}
	return Bucket{}, false
}

// next returns the next candidate, or -1 if there is none: of the heads of the plain queue and of each fair limit, the
// one with the lowest rank.
func (l *line) next() int {
	best, from := -1, Bucket{}
	if len(l.plain) > 0 {
		best = l.plain[0]
	}
	for name, tenants := range l.fair {
		t, ok := l.tenant(tenants)
		if !ok {
			delete(l.fair, name)
			continue
		}
		if head := tenants[t][0]; best < 0 || head < best {
			best, from = head, t
		}
	}
	switch {
	case best < 0:
	case from == Bucket{}:
		l.plain = l.plain[1:]
	default:
		l.pop(from)
	}
	return best
}

func (l *line) pop(t Bucket) {
	tenants := l.fair[t.Name]
	tenants[t] = tenants[t][1:]
	if len(tenants[t]) == 0 {
		delete(tenants, t)
	}
}

// tenant returns which tenant is next: who has the fewest slots, then who was served longest ago, then who came first.
func (l *line) tenant(tenants map[Bucket][]int) (best Bucket, ok bool) {
	for t, queue := range tenants {
		if !ok || l.before(t, best, queue[0], tenants[best]) {
			best, ok = t, true
		}
	}
	return best, ok
}

func (l *line) before(t, best Bucket, head int, other []int) bool {
	if a, b := l.Tenants[t], l.Tenants[best]; a != b {
		return a < b
	}
	if a, b := l.Served[t], l.Served[best]; !a.Equal(b) {
		return a.Before(b)
	}
	return head < other[0]
}
