package live

import (
	"maps"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// Runs is the topic of what happens to runs. It has no version: a cursor says what has happened.
const Runs = "runs"

// Versions are the versions of data, by topic: a version is another one when the data has changed. Topics and versions
// consist of lower case letters and digits.
type Versions map[string]string

// Changed returns the topics with another version than before.
func (v Versions) Changed(before Versions) []string {
	return slices.DeleteFunc(slices.Collect(maps.Keys(v)), func(topic string) bool { return v[topic] == before[topic] })
}

// Place is up to where a viewer has been sent everything.
type Place struct {
	Cursor read.FeedCursor
	// Versions are those of the topics; nil if the viewer wants none.
	Versions Versions
}

// String returns the place as text: the cursor, and the versions as topic=version.
func (p Place) String() string {
	parts := []string{p.Cursor.String()}
	for _, topic := range slices.Sorted(maps.Keys(p.Versions)) {
		parts = append(parts, topic+"="+p.Versions[topic])
	}
	return strings.Join(parts, ";")
}

// ParsePlace is the inverse of [Place.String]. It fails with [entities.ErrInvalid].
func ParsePlace(text string) (Place, error) {
	parts := strings.Split(text, ";")
	cursor, err := read.ParseFeedCursor(parts[0])
	p := Place{Cursor: cursor}
	for _, part := range parts[1:] {
		topic, version, ok := strings.Cut(part, "=")
		if !ok {
			return Place{}, entities.Invalid("%q is not the version of a topic", part)
		}
		if p.Versions == nil {
			p.Versions = Versions{}
		}
		p.Versions[topic] = version
	}
	return p, err
}
