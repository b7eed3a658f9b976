package stepwell

import "testing"

func TestBuildsAreToldApart(t *testing.T) {
	t.Parallel()
	hash := func() string { return "0123456789ab" }
	for _, test := range []struct {
		commit   string
		modified bool
		want     string
	}{
		{"4e0a21842d65ea21c5d6ef9d", false, "4e0a21842d65"},
		{"4e0a21842d65ea21c5d6ef9d", true, "4e0a21842d65-0123456789ab"},
		{"", false, "0123456789ab"},
	} {
		if got := revisionOf(test.commit, test.modified, hash); got != test.want {
			t.Errorf("%+v: got %s", test, got)
		}
	}
	if got := programHash(); len(got) != len(hash()) {
		t.Errorf("the program's hash is %q", got)
	}
}
