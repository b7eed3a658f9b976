package cast

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

// sample is a recording with pieces of lines, a long wait, and a line that is too long.
var sample = Recording{
	Title: "A <title>", Width: 10, Height: 2, IdleLimit: 2 * time.Second,
	Output: []Output{
		{0, "$ one\n"},
		{500 * time.Millisecond, "a"}, {600 * time.Millisecond, "b\n\nc & d\n"},
		{time.Minute, "0123456789ABC\n"},
		{time.Minute + time.Second, "end"},
	},
}

// TestLinesComeWhenTheyBegin: a long wait is cut, pieces are one line, and a line that is too long is two.
func TestLinesComeWhenTheyBegin(t *testing.T) {
	t.Parallel()
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	want := []Line{
		{0, "$ one"}, {ms(500), "ab"}, {ms(600), ""}, {ms(600), "c & d"},
		{ms(2600), "0123456789"}, {ms(2600), "ABC"}, {ms(3600), "end"},
	}
	if got := sample.Lines(); !slices.Equal(got, want) {
		t.Errorf("got\n%v, want\n%v", got, want)
	}
}

// TestWrittenIsRead, and what is no asciicast is refused.
func TestWrittenIsRead(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	if err := sample.Write(&file); err != nil {
		t.Fatal(err)
	}
	written := file.String()
	got, err := Read(&file)
	if err != nil || got.Title != sample.Title || got.Width != sample.Width || got.Height != sample.Height ||
		got.IdleLimit != sample.IdleLimit || !slices.Equal(got.Output, sample.Output) {
		t.Errorf("got %+v, %v of\n%s", got, err, written)
	}
	for _, text := range []string{"", "{}\n", `{"version":1}`, `{"version":2}` + "\n[1]\n", `{"version":2}` + "\n" + `[1,"i","x"]`} {
		if _, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%q is no asciicast", text)
		}
	}
}

// TestPictureEscapes what is text.
func TestPictureEscapes(t *testing.T) {
	t.Parallel()
	var picture bytes.Buffer
	if err := sample.SVG(&picture); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">c &amp; d</text>", ">A &lt;title&gt;</title>", `class="m0 command"`} {
		if !strings.Contains(picture.String(), want) {
			t.Errorf("the picture has no %s:\n%s", want, &picture)
		}
	}
}
