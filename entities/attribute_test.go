package entities

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func set(key, value string) AttributeChange { return AttributeChange{Key: key, Value: &value} }
func remove(key string) AttributeChange     { return AttributeChange{Key: key} }

// many returns n attributes, k0 to k(n-1).
func many(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprintf("k%d", i)] = "v"
	}
	return m
}

func TestMergeAttributes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		have    map[string]string
		changes []AttributeChange
		want    map[string]string
	}{
		"sets":                  {nil, []AttributeChange{set("a", "1")}, map[string]string{"a": "1"}},
		"overwrites":            {many(1), []AttributeChange{set("k0", "2")}, map[string]string{"k0": "2"}},
		"removes":               {many(2), []AttributeChange{remove("k0")}, map[string]string{"k1": "v"}},
		"removes an absent key": {nil, []AttributeChange{remove("a")}, map[string]string{}},
		"keeps an empty value":  {nil, []AttributeChange{set("a", "")}, map[string]string{"a": ""}},
		"no changes, not nil":   {nil, nil, map[string]string{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := maps.Clone(test.have)
			got, err := MergeAttributes(test.have, test.changes, false)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("attributes differ (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, test.have); diff != "" {
				t.Errorf("the old attributes were changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAttributeLimits(t *testing.T) {
	t.Parallel()
	full := many(64)
	tests := map[string]struct {
		have    map[string]string
		changes []AttributeChange
		valid   bool
	}{
		"key of 1 character":          {nil, []AttributeChange{set("a", "")}, true},
		"key of 256 characters":       {nil, []AttributeChange{set(strings.Repeat("ä", 256), "")}, true},
		"key of 256 wide characters":  {nil, []AttributeChange{set(strings.Repeat("🧾", 256), "")}, true},
		"key of 257 characters":       {nil, []AttributeChange{set(strings.Repeat("a", 257), "")}, false},
		"empty key":                   {nil, []AttributeChange{set("", "")}, false},
		"removing an empty key":       {nil, []AttributeChange{remove("")}, false},
		"removing a long key":         {nil, []AttributeChange{remove(strings.Repeat("a", 257))}, false},
		"value of 256 bytes":          {nil, []AttributeChange{set("a", strings.Repeat("v", 256))}, true},
		"value of 257 bytes":          {nil, []AttributeChange{set("a", strings.Repeat("v", 257))}, false},
		"value of 129 letters in 258": {nil, []AttributeChange{set("a", strings.Repeat("ä", 129))}, false},
		"a key twice":                 {nil, []AttributeChange{set("a", "1"), set("a", "2")}, false},
		"a key set and removed":       {nil, []AttributeChange{set("a", "1"), remove("a")}, false},
		"64 in total":                 {nil, setAll(full), true},
		"65 in total":                 {full, []AttributeChange{set("one more", "")}, false},
		"64, overwriting counts as 0": {full, []AttributeChange{set("k0", "new")}, true},
		"64, removing an absent key":  {full, []AttributeChange{remove("absent")}, true},
		"64, one out and one in":      {full, []AttributeChange{set("one more", ""), remove("k0")}, true},
		"a NUL in the key":            {nil, []AttributeChange{set("a\x00", "")}, false},
		"a NUL in the value":          {nil, []AttributeChange{set("a", "\x00")}, false},
		"a NUL in a key to remove":    {nil, []AttributeChange{remove("a\x00")}, false},
		"a new line in the value":     {nil, []AttributeChange{set("a", "1\n2")}, true},
		"a key that is not UTF-8":     {nil, []AttributeChange{set("\xff", "")}, false},
		"a value that is not UTF-8":   {nil, []AttributeChange{set("a", "\xff")}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			merged, err := MergeAttributes(test.have, test.changes, false)
			wantInvalid(t, err, test.valid)
			if err != nil && merged != nil {
				t.Errorf("got %d attributes and an error, want none", len(merged))
			}
		})
	}
}

func setAll(attributes map[string]string) []AttributeChange {
	var changes []AttributeChange
	for key, value := range attributes {
		changes = append(changes, set(key, value))
	}
	return changes
}

func TestReservedAttributesNeedPermission(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]AttributeChange{"set": set("$sys", "1"), "remove": remove("$sys")} {
		for _, allowed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, allowed %t", name, allowed), func(t *testing.T) {
				t.Parallel()
				_, err := MergeAttributes(nil, []AttributeChange{change}, allowed)
				wantInvalid(t, err, allowed)
			})
		}
	}
	t.Run("a dollar sign at the end is not reserved", func(t *testing.T) {
		t.Parallel()
		_, err := MergeAttributes(nil, []AttributeChange{set("a$", "1")}, false)
		wantInvalid(t, err, true)
	})
}

func TestMergeAttributesEqualsApplyingChangesOneByOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		have := rapid.MapOf(key, rapid.StringN(0, 4, 256)).Draw(t, "have")
		var changes []AttributeChange
		want := maps.Clone(have)
		for _, k := range rapid.SliceOfDistinct(key, rapid.ID[string]).Draw(t, "keys") {
			if rapid.Bool().Draw(t, "remove") {
				changes = append(changes, remove(k))
				delete(want, k)
			} else {
				changes = append(changes, set(k, "new"))
				want[k] = "new"
			}
		}
		got, err := MergeAttributes(have, changes, false)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("attributes differ (-want +got):\n%s", diff)
		}
	})
}
