package model

import (
	"fmt"
	"strings"
)

// LeavingOut is the answer without what the protocol lets a server leave out (§3.2) and got does: payloads, but for
// the input of a step that is to begin; and the hook that has received something.
func (a Answer) LeavingOut(got Answer) Answer {
	a.Event = without(a.Event, got.Event, func(e, got *Event) { leave(&e.Body, got.Body) })
	a.Run = without(a.Run, got.Run, func(r, got *Run) {
		leave(&r.Input, got.Input)
		leave(&r.Output, got.Output)
	})
	a.Step = without(a.Step, got.Step, func(s, got *Step) {
		if a.Event.Type != "step_started" {
			leave(&s.Input, got.Input)
		}
		leave(&s.Output, got.Output)
	})
	a.Hook = without(a.Hook, got.Hook, func(k, got *Hook) { leave(&k.Metadata, got.Metadata) })
	if a.Event != nil && a.Event.Type == "hook_received" && got.Hook == nil {
		a.Hook = nil
	}
	items := a.Items
	a.Items = nil
	for i, item := range items {
		if i < len(got.Items) {
			item = item.leavingOutItem(got.Items[i])
		}
		a.Items = append(a.Items, item)
	}
	return a
}

// leavingOutItem is LeavingOut for one of a batch, where who starts a step has the input.
func (a Answer) leavingOutItem(got Answer) Answer {
	a = a.LeavingOut(got)
	a.Step = without(a.Step, got.Step, func(s, got *Step) { leave(&s.Input, got.Input) })
	return a
}

// without is a copy of what is wanted, from which fields were left out by what was got, which may be nothing.
func without[T any](want, got *T, leaveOut func(want, got *T)) *T {
	if want == nil {
		return nil
	}
	rest := *want
	if got == nil {
		got = new(T)
	}
	leaveOut(&rest, got)
	return &rest
}

func leave(field *string, got string) {
	if got == "" {
		*field = ""
	}
}

// line is words on one line, without those that say nothing.
type line []string

func (l *line) add(name string, value any) {
	switch s := fmt.Sprint(value); s {
	case "", "0", "false", "[]", "map[]":
	default:
		*l = append(*l, name+s)
	}
}

// String is the request on one line.
func (r Request) String() string {
	l := line{r.Op}
	l.add("", r.Run)
	l.add("spec=", r.Spec)
	for _, e := range r.Events {
		l.add("", e)
	}
	l.add("skip=", r.Skip)
	l.add("frames=", r.Frames)
	l.add("since=", r.Since)
	l.add("maxSlot=", r.MaxSlot)
	l.add("topic=", r.Topic)
	l.add("deployment=", r.Deployment)
	l.add("key=", r.Key)
	l.add("body=", r.Body)
	l.add("id=", r.ID)
	l.add("handle=", r.Handle)
	l.add("seconds=", r.Seconds)
	l.add("stream=", r.Stream)
	l.add("chunks=", r.Chunks)
	l.add("done=", r.Done)
	return strings.Join(l, " ")
}

// String is the event in brackets.
func (e Event) String() string {
	var l line
	l.add("", e.Seq)
	l.add("", e.Type)
	l.add("", e.ID)
	l.add("body=", e.Body)
	l.add("name=", e.Name)
	l.add("due=", e.Due)
	l.add("token=", e.Token)
	l.add("holder=", e.Holder)
	l.add("webhook=", e.Webhook)
	l.add("retain=", e.Retain)
	l.add("resume=", e.Resume)
	l.add("digest=", e.Digest)
	l.add("deployment=", e.Deployment)
	l.add("workflow=", e.Workflow)
	l.add("code=", e.ErrorCode)
	l.add("attributes=", e.Attributes)
	l.add("changes=", e.Changes)
	l.add("mark=", e.Mark)
	return "[" + strings.Join(l, " ") + "]"
}
