package ui

import (
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestCollectionPages looks at runs that collect starts, starts one of them, and drops another one.
func TestCollectionPages(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	eachBase(t, func(i *installation, admin, guest *tab) {
		admin.open("/ui/default/collections")
		admin.shows("Nothing is being collected")
		admin.accessible()
		batch, debounced := i.collectionsScene(admin)
		guest.open("/ui/default/collections/" + batch)
		guest.shows("batch of 10", "for-c7")
		guest.isReadOnly()
		guest.hasNone("collections", "Nothing is collected for this run")
		flushScene(admin, batch)
		dropScene(admin, debounced)
	})
}

// collectionsScene starts a batch and a debounce.
func (i *installation) collectionsScene(b *tab) (batch, debounced string) {
	for n := range 3 {
		batch = i.start("reminder", map[string]any{"input": n, "batch": map[string]any{"size": 10, "wait": "1h", "key": "for-c7"}})
	}
	debounced = i.start("reminder", map[string]any{"debounce": map[string]any{"quiet": "10m"}})
	b.rows(2)
	b.shows("collecting", "for-c7", "batch of 10, wait 1h", "without a key", "debounce 10m")
	b.seen("collections")
	b.allow("404") // of the live connection, until the page knows that the run has not started
	b.open("/ui/default/runs/" + batch)
	b.shows("This run has not started")
	b.click("Its collection")
	b.shows("It collects starts until", "7 B", "for-c7")
	b.seen("collection")
	return batch, debounced
}

// flushScene starts the run of a collection.
func flushScene(b *tab, id string) {
	b.click("Flush …")
	b.accessible()
	b.click("Start it")
	b.shows(id, "$collected", "batch")
	b.open("/ui/default/collections/" + id)
	b.allow("404")
	b.shows("It has started, or its collection was dropped.")
	b.click("The run")
	b.shows("$collected")
}

func dropScene(b *tab, id string) {
	b.open("/ui/default/collections")
	b.rows(1)
	b.click(short(id))
	b.click("Drop …")
	b.accessible()
	b.click("Drop it")
	b.shows("Nothing is being collected")
	b.click("of batches")
	b.rows(1)
	b.shows("reminder")
}
