package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type whyCmd struct {
	ID string `arg:"" help:"The run's ID."`
}

// Run prints why the run is not done: each reason with its times, its last error, and the commands that help.
func (c whyCmd) Run(ctx context.Context, s *Session) error {
	var e api.Explanation
	raw, err := s.client.get(ctx, path("runs", c.ID, "why"), nil, &e)
	if err != nil || s.json {
		return errors.Join(err, s.printJSON(raw))
	}
	return s.printExplanation(e)
}

func (s *Session) printExplanation(e api.Explanation) error {
	var b strings.Builder
	say := func(format string, args ...any) { // errors may have several lines
		text := strings.TrimRight(string(escapeLines(fmt.Sprintf(format, args...))), "\n")
		b.WriteString(strings.ReplaceAll(text, "\n", "\n    ") + "\n")
	}
	if e.End != nil {
		say("%s: %s", e.End.Status, s.timeAndAge(e.End.At.Time))
		if text := cmp.Or(failureText(e.End.Error), e.End.CancelReason); text != "" {
			say("  %s", text)
		}
		_, err := io.WriteString(s.Stdout, b.String())
		return err
	}
	say("%s", e.Verdict)
	for _, r := range e.Reasons {
		say("- %s%s", r.Sentence, s.times(r.Since, r.At, r.Until))
		failed := orZero(r.Error)
		if text := errorText(failed.Code, failed.Message); text != "" {
			say("  last error: %s", text)
		}
		for _, command := range r.Commands {
			say("  %s", command)
		}
	}
	open := orZero(e.Open)
	if open.Steps+open.Hooks+open.Waits > int64(len(e.Reasons)) {
		say("open: %d steps, %d hooks, %d waits", open.Steps, open.Hooks, open.Waits)
	}
	if e.Next != nil {
		say("next: %s %s", strings.ReplaceAll(string(e.Next.Kind), "_", " "), s.timeAndAge(e.Next.At.Time))
	}
	if !e.Deadline.IsZero() {
		say("deadline: %s", s.timeAndAge(e.Deadline.Time))
	}
	_, err := io.WriteString(s.Stdout, b.String())
	return err
}

// times says since when a reason exists, when the run goes on, and until when something is under way.
func (s *Session) times(since, at, until api.Time) string {
	var parts []string
	switch {
	case since.IsZero():
	case s.RelativeTimes:
		parts = append(parts, "for "+age(s.Now().Sub(since.Time)))
	default:
		parts = append(parts, "since "+s.formatTime(since.Time))
	}
	for _, t := range []struct {
		word string
		at   time.Time
	}{{"goes on", at.Time}, {"until", until.Time}} {
		if !t.at.IsZero() {
			parts = append(parts, t.word+" "+s.formatTime(t.at))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
