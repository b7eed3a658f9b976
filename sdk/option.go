package stepwell

import "time"

// Each option says by its type of what it is one, so that the compiler refuses an option where it would be ignored.
type (
	// StepOption configures a step, where it is declared or where it is run.
	StepOption interface{ configureStep(*stepOptions) }

	// DoOption is a [StepOption] that [Do] takes as well.
	DoOption interface {
		StepOption
		runsHere()
	}

	// ChildOption configures a child run.
	ChildOption interface{ configureChild(*startChild) }

	// StartOption configures the start of a run.
	StartOption interface{ configureStart(*startBody) }

	// SignalSendOption configures a signal that is sent.
	SignalSendOption interface{ configureSending(*sending) }

	// SendOption configures what is sent to a run: a signal, and also a hook's payload or a message.
	SendOption interface {
		SignalSendOption
		sendsToOne()
	}

	// HookOption configures a hook.
	HookOption interface{ configureHook(*openHook) }

	// WebhookOption configures a webhook.
	WebhookOption interface{ configureWebhook(*openHook) }
)

// What is an option of several things.
type (
	// IDOption is an option of what has an ID in the log of a run: steps, those of [Do], and children.
	IDOption interface {
		DoOption
		ChildOption
	}

	// RunOption is an option of a run, whether it is started from outside or as a child.
	RunOption interface {
		ChildOption
		StartOption
	}

	// CommonOption is an option of a step and of a run.
	CommonOption interface {
		StepOption
		RunOption
	}

	// AdmissionOption is an option of what may have to wait for limits: steps, and runs that are started from outside.
	AdmissionOption interface {
		StepOption
		StartOption
	}

	// TokenOption is an option of a hook and of a webhook.
	TokenOption interface {
		HookOption
		WebhookOption
	}
)

type (
	stepOption       func(*stepOptions)
	doOption         func(*stepOptions)
	childOption      func(*startChild)
	startOption      func(*startBody)
	hookOption       func(*openHook)
	sendOption       func(*sending)
	signalSendOption func(*sending)
	webhookOption    func(*openHook)

	idOption struct {
		doOption
		childOption
	}
	runOption struct {
		childOption
		startOption
	}
	commonOption struct {
		stepOption
		childOption
		startOption
	}
	admissionOption struct {
		stepOption
		startOption
	}
	tokenOption struct {
		hookOption
		webhookOption
	}
)

func (set stepOption) configureStep(o *stepOptions)      { set(o) }
func (set doOption) configureStep(o *stepOptions)        { set(o) }
func (doOption) runsHere()                               {}
func (set childOption) configureChild(c *startChild)     { set(c) }
func (set startOption) configureStart(b *startBody)      { set(b) }
func (set sendOption) configureSending(s *sending)       { set(s) }
func (sendOption) sendsToOne()                           {}
func (set signalSendOption) configureSending(s *sending) { set(s) }
func (set hookOption) configureHook(c *openHook)         { set(c) }
func (set webhookOption) configureWebhook(c *openHook)   { set(c) }

// ID sets the ID of a step or child in its run: 1 to 256 printable characters without spaces and slashes. By default it
// is made from the place: the name, and the names of the enclosing coroutines and items. A second one with the same ID
// panics; see [FailOnPanic].
func ID(id string) IDOption {
	return idOption{func(o *stepOptions) { o.id = id }, func(c *startChild) { c.ID = id }}
}

// Timeout limits the time of a step or run; by default there is no limit.
//
// The time of a step includes that in the queue and between attempts. When it is over, the step fails, and its
// [*StepError] is [ErrTimeout]. All attempts are calls of their own, as with [Remote].
//
// The time of a run is counted from its start. When it is over, the run fails with the code timeout, after the
// [TimeoutGrace]. The [*RunFailedError] is then [ErrTimeout].
func Timeout(d time.Duration) CommonOption {
	return commonOption{
		func(o *stepOptions) { o.remote, o.timeout = true, d },
		func(c *startChild) { c.Timeout = d.String() },
		func(b *startBody) { b.Timeout = d.String() },
	}
}

// TimeoutGrace is how long a run may go on when its time is over: it is asked to cancel, so that it can compensate, and
// fails when the grace is over. By default it fails at once.
func TimeoutGrace(d time.Duration) RunOption {
	return runOption{
		func(c *startChild) { c.TimeoutGrace = unlessZero(d) },
		func(b *startBody) { b.TimeoutGrace = d.String() },
	}
}

// Deployment has another deployment execute a step or child than that of the run, and a run another one than the newest
// that has the workflow.
func Deployment(id string) CommonOption {
	return commonOption{
		func(o *stepOptions) { o.deployment = id },
		func(c *startChild) { c.Deployment = id },
		func(b *startBody) { b.Deployment = id },
	}
}

// Attribute gives a run an attribute, by which [Client.Runs] finds it. A run has up to 64, with keys of up to 256
// characters and values of up to 256 bytes.
func Attribute(key, value string) RunOption {
	return runOption{
		func(c *startChild) { setIn(&c.Attributes, key, value) },
		func(b *startBody) { setIn(&b.Attributes, key, value) },
	}
}

func setIn(values *map[string]string, key, value string) {
	if *values == nil {
		*values = map[string]string{}
	}
	(*values)[key] = value
}

// Limits lets a run start, or each attempt of a step, when it has its slots of all of these limits, up to 8. If a
// limit is full, its settings decide whether it waits, or is refused with the code limit_full. A policy of the workflow
// may add others. All attempts of such a step are calls of their own, as with [Remote].
func Limits(uses ...LimitUse) AdmissionOption {
	return admissionOption{
		func(o *stepOptions) { o.remote, o.limits = true, append(o.limits, uses...) },
		func(b *startBody) { b.Limits = append(b.Limits, uses...) },
	}
}

// Priority lets a run or step go before others that wait for its limits, as if it had come d earlier: from -1h to 1h.
func Priority(d time.Duration) AdmissionOption {
	return admissionOption{
		func(o *stepOptions) { o.priority = d },
		func(b *startBody) { b.Priority = d.String() },
	}
}

// Token sets the token under which a hook can be resumed, or that is in the URL of a webhook. By default it is random
// and cannot be guessed. Whoever knows it can resume the hook.
func Token(token string) TokenOption {
	return tokenOption{
		func(c *openHook) { c.Token = token },
		func(c *openHook) { c.Token = token },
	}
}
