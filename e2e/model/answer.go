package model

import (
	"fmt"
	"strings"
)

// LeavingOut is the answer without what the protocol lets a server leave out (§3.2) and got does: payloads, but for
// the input of a step that is to begin; and the hook that has received something.
func (a Answer) LeavingOut(got Answer) Answer {
	if a.Event != nil {
		e := *a.Event
		leave(&e.Body, got.Event == nil || got.Event.Body == "")
		a.Event = &e
	}
	if a.Run != nil {
		r := *a.Run
		leave(&r.Input, got.Run == nil || got.Run.Input == "")
		leave(&r.Output, got.Run == nil || got.Run.Output == "")
		a.Run = &r
	}
	if a.Step != nil {
		s := *a.Step
		leave(&s.Input, got.Step == nil || got.Step.Input == "" && a.Event.Type != "step_started")
		leave(&s.Output, got.Step == nil || got.Step.Output == "")
		a.Step = &s
	}
	if a.Hook != nil && got.Hook == nil && a.Event != nil && a.Event.Type == "hook_received" {
		a.Hook = nil
	}
	if a.Hook != nil {
		k := *a.Hook
		leave(&k.Metadata, got.Hook == nil || got.Hook.Metadata == "")
		a.Hook = &k
	}
	items := a.Items
	a.Items = nil
	for i, item := range items {
		if i < len(got.Items) {
			item = item.LeavingOut(got.Items[i])
			if item.Step != nil && got.Items[i].Step != nil { // here the client has the input
				leave(&item.Step.Input, got.Items[i].Step.Input == "")
			}
		}
		a.Items = append(a.Items, item)
	}
	return a
}

func leave(field *string, out bool) {
	if out {
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
