package stepwell

// Durability says when the results of steps that are executed inline are on disk; see [Checkpoint].
type Durability int

const (
	// Each result is on disk before the next step begins. It costs a commit for each step.
	Each Durability = iota
	// Batch writes results with the next thing that has to be written anyway: a wait, a remote step, or the end. If the
	// process dies, all steps since the last write are executed again, so use it for steps that may be repeated. What
	// [Value] returned is on disk before the next step begins all the same.
	Batch
)

// Checkpoint sets the durability of a workflow's inline steps; [Each] by default.
func Checkpoint(d Durability) WorkflowOption {
	return func(o *workflowOptions) { o.batch = d == Batch }
}

// PanicPolicy says what a panic of a workflow does; see [OnPanic].
type PanicPolicy int

const (
	// HoldRun holds the run: nothing is recorded, and the server calls the workflow again later, or when a new version is
	// deployed.
	HoldRun PanicPolicy = iota
	// FailRun fails the run with the code panic, and the stack in the details.
	FailRun
)

// OnPanic sets what a panic of a workflow does; [HoldRun] by default. A panic in a step is a failed attempt.
func OnPanic(p PanicPolicy) WorkflowOption {
	return func(o *workflowOptions) { o.failRuns = p == FailRun }
}
