package ui

import "testing"

// eachBase plays scenes of the pages of a kind of thing, such as schedules, at each of the bases, as an admin and as
// somebody with the role metadata.
func eachBase(t *testing.T, scenes func(i *installation, admin, guest *tab)) {
	t.Helper()
	for name, base := range bases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstallation(t, base)
			admin, guest := newTab(t, i.web), newTab(t, i.web)
			i.enter(admin, "admin")
			i.enter(guest, "metadata")
			scenes(i, admin, guest)
		})
	}
}

// enter signs a browser in with a new key of a role.
func (i *installation) enter(b *tab, role string) {
	i.t.Helper()
	var made struct{ Key string }
	i.call("POST", "/v1/keys", map[string]any{"name": role, "role": role}, &made)
	b.open("/")
	b.fill("input[name=key]", made.Key)
	b.click("Sign in")
	b.shows("Sign out")
}

// pause pauses what the page shows, with a note.
func (b *tab) pause() {
	b.t.Helper()
	b.click("Pause …")
	b.fill("dialog input[name=note]", "the database moves")
	b.accessible()
	b.click("Pause it")
	b.shows("paused", "the database moves")
}

// resume resumes what the page shows.
func (b *tab) resume() {
	b.t.Helper()
	b.click("Resume …")
	b.click("Resume it")
	b.shows("active")
}

// remove deletes what the page shows.
func (b *tab) remove() {
	b.t.Helper()
	b.click("Delete …")
	b.accessible()
	b.click("Delete it")
}

// isReadOnly checks that the buttons of the page do nothing.
func (b *tab) isReadOnly() {
	b.t.Helper()
	b.until("nothing can be done", `((all) => all.length > 0 && all.every((e) => e.disabled))([...document.querySelectorAll(".actions button")])`)
}

// hasNone opens the page of something that does not exist.
func (b *tab) hasNone(place, says string) {
	b.t.Helper()
	b.open("/ui/default/" + place + "/gone")
	b.allow("404")
	b.shows(says)
	b.accessible()
}

// seen checks a page and takes its pictures: it is accessible, and fits narrow screens.
func (b *tab) seen(name string) {
	b.t.Helper()
	b.accessible()
	b.narrow()
	b.look(name)
}
