package model

import (
	"fmt"
	"strings"
)

// WithoutOmitted returns the answer without the parts that got omits and the protocol lets a server omit (§3.2):
// payloads, except the input of a starting step, and the hook of a hook_received.
func (a Answer) WithoutOmitted(got Answer) Answer {
	a.Event = omit(a.Event, got.Event, func(e, got *Event) { clearIfEmpty(&e.Body, got.Body) })
	a.Run = omit(a.Run, got.Run, func(r, got *Run) {
		clearIfEmpty(&r.Input, got.Input)
		clearIfEmpty(&r.Output, got.Output)
	})
	a.Step = omit(a.Step, got.Step, func(s, got *Step) {
		if a.Event.Type != "step_started" {
			clearIfEmpty(&s.Input, got.Input)
		}
		clearIfEmpty(&s.Output, got.Output)
	})
	a.Hook = omit(a.Hook, got.Hook, func(k, got *Hook) { clearIfEmpty(&k.Metadata, got.Metadata) })
	if a.Event != nil && a.Event.Type == "hook_received" && got.Hook == nil {
		a.Hook = nil
	}
	items := a.Items
	a.Items = nil
	for i, item := range items {
		if i < len(got.Items) {
			item = item.itemWithoutOmitted(got.Items[i])
		}
		a.Items = append(a.Items, item)
	}
	return a
}

// itemWithoutOmitted is WithoutOmitted for an item of a batch. There a step_started may omit the input too, because the
// client has sent it in the same batch.
func (a Answer) itemWithoutOmitted(got Answer) Answer {
	a = a.WithoutOmitted(got)
	a.Step = omit(a.Step, got.Step, func(s, got *Step) { clearIfEmpty(&s.Input, got.Input) })
	return a
}

// omit returns a copy of want without the fields that got omits. got may be nil.
func omit[T any](want, got *T, omitFields func(want, got *T)) *T {
	if want == nil {
		return nil
	}
	rest := *want
	if got == nil {
		got = new(T)
	}
	omitFields(&rest, got)
	return &rest
}

func clearIfEmpty(field *string, got string) {
	if got == "" {
		*field = ""
	}
}

// words is a line of words that leaves out zero values.
type words []string

func (l *words) add(name string, value any) {
	switch s := fmt.Sprint(value); s {
	case "", "0", "false", "[]", "map[]":
	default:
		*l = append(*l, name+s)
	}
}

// String formats the request on one line.
func (r Request) String() string {
	l := words{r.Op}
	l.add("", r.Run)
	l.add("spec=", r.Spec)
	if r.InBand {
		l = append(l, fmt.Sprint("seen=", r.Seen))
	}
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

// String formats the event in brackets.
func (e Event) String() string {
	var l words
	l.add("", e.Seq)
	l.add("", e.Type)
	l.add("", e.ID)
	l.add("body=", e.Body)
	l.add("name=", e.Name)
	l.add("due=", e.Due)
	l.add("token=", e.Token)
	l.add("force=", e.Force)
	l.add("from=", e.From)
	l.add("by=", e.By)
	l.add("holder=", e.Holder)
	l.add("kept=", e.Kept)
	l.add("webhook=", e.Webhook)
	l.add("retain=", e.Retain)
	l.add("resume=", e.Resume)
	l.add("digest=", e.Digest)
	l.add("attempt=", e.Attempt)
	l.add("deployment=", e.Deployment)
	l.add("workflow=", e.Workflow)
	l.add("code=", e.ErrorCode)
	l.add("attributes=", e.Attributes)
	l.add("changes=", e.Changes)
	l.add("mark=", e.Mark)
	return "[" + strings.Join(l, " ") + "]"
}
