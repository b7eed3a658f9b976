package queue

import (
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestWhichDeploymentsStartsRemember: those of apps, and versions of flows that are named.
func TestWhichDeploymentsStartsRemember(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.register(t, "any", "http://a.test")
	r.Exec(t, `INSERT INTO deployments (project, id, url, workflows)
		VALUES ('`+string(project)+`', 'order@1', 'flow:order@1', '{order}')`)
	r.Exec(t, `INSERT INTO flow_versions (project, name, version, deployment_id, digest, document, semantics, created_at)
		VALUES ('`+string(project)+`', 'order', 1, 'order@1', '\x00', '', 1, now())`)
	r.Exec(t, `INSERT INTO flow_aliases (project, name, alias, id, version, updated_at)
		VALUES ('`+string(project)+`', 'order', 'live', 'order@live', 1, now())`)
	for _, test := range []struct {
		workflow, named, want string
		remembered            bool
	}{
		{"ship", "", "any", true},
		{"ship", "any", "any", true},
		{"order", "any", "any", true},
		{"order", "order@1", "order@1", true},
		{"order", "order@live", "order@1", false},
		{"order", "", "order@1", false},
	} {
		for n, remembered := range []bool{false, test.remembered} {
			d, still, err := r.StartRemembered(t.Context(), project, test.workflow, test.named)
			if err != nil || d.ID != test.want || (still != nil) != remembered {
				t.Errorf("%s on %q, start %d: got %s, remembered %t (%v), want %s, %t",
					test.workflow, test.named, n+1, d.ID, still != nil, err, test.want, remembered)
			}
		}
	}
}
