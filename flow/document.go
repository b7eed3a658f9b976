// Package flow runs declarative workflows: documents that say which steps a run has, what each step needs, and what
// follows from failures. docs/flows.md describes them for their authors.
//
// A flow is a function behind the function contract. [Program.Answer] reads a call, with the run's log, and returns the
// commands that follow. It is pure: it knows no clock, no chance and no database, so the same log always has the same
// answer, whether the program is asked by the server or as a remote HTTP function.
//
//	document ── Parse ──▶ Program ── Answer(call) ──▶ commands
//	            faults                  fold the log, then decide until nothing follows
package flow

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/schema"
)

// Format is the version of the documents' format.
const Format = 1

// Semantics is the number of the rules by which documents are interpreted. It grows when a rule changes so that a log
// of before would be continued in another way. Package replay has recorded runs of each number, which are kept for
// good. The rules of a number stay as long as there may be runs that began with them.
const Semantics = 1

// Knows reports whether this program has the rules of a number.
func Knows(semantics int) bool { return semantics == Semantics }

const (
	// MaxSteps limits the steps of a flow, and of each body in it. The commands that begin them, two for a signal, fit in
	// a decision: see [fullDecision].
	MaxSteps = 240
	// maxCatches limits the catches of a step.
	maxCatches = 20
	// maxName limits the length of names, and of the IDs of steps, in bytes.
	maxName = 128
)

// reservedName is no name of a flow, since its address in the API is another one's.
const reservedName = "schema"

// Program is a compiled document.
type Program struct {
	// Name is the name of the flow, and so of the workflow that it is.
	Name string
	// Description says what the flow is for.
	Description string
	// Input is the JSON Schema of the input; nil for any input.
	Input json.RawMessage
	// Deployment executes the calls of steps that name none.
	Deployment string
	// Warnings are what is probably not meant, though it is allowed.
	Warnings Faults

	schema *schema.Schema
	output *template
	drain  bool // whether steps end when another one has failed
	// timeout is how long a run may take; 0 for any time.
	timeout time.Duration
	goals   []int
	steps   []step
	byID    map[string]int
	digest  [sha256.Size]byte
	// meaning is like digest, but is not changed by another order of fields.
	meaning [sha256.Size]byte
	size    int
	// undoneBefore are the steps that are undone before each step.
	undoneBefore [][]int
}

// step is a step of a program.
type step struct {
	// id is that in the log, and name that in the document. They differ in bodies, whose instances have a prefix.
	id    string
	name  string
	needs []int
	// wantedBy are the steps that need this one.
	wantedBy []int
	join     join
	when     *expression
	action   action
	catches  []catch
	undo     *action
	// target is set for steps that begin because a catch leads to them: the step that has it, plus one.
	target int
	at     *node
}

// join says how many of the needed steps must have ended well.
type join string

const (
	joinAll    join = "all"    // each has completed or was skipped, and at least one completed
	joinAny    join = "any"    // one has completed
	joinEvery  join = "every"  // each has completed
	joinNone   join = "none"   // all have ended, and none has completed
	joinAlways join = "always" // all have ended, whatever became of them
)

// actionKind is what a step does: the name of the field that says it.
type actionKind string

const (
	kindCall     actionKind = "call"
	kindFlow     actionKind = "flow"
	kindWait     actionKind = "wait"
	kindSignal   actionKind = "signal"
	kindHTTP     actionKind = "http"
	kindHook     actionKind = "hook"
	kindApproval actionKind = "approval"
	kindStart    actionKind = "start"
	kindEmit     actionKind = "emit"
	kindRespond  actionKind = "respond"
	kindSet      actionKind = "set"
	kindComplete actionKind = "complete"
	kindFail     actionKind = "fail"
	kindMap      actionKind = "map"
	kindLoop     actionKind = "loop"
	kindPlan     actionKind = "plan"
)

// action is what a step, or the undoing of one, does.
type action struct {
	kind actionKind
	// name is the function that is called, the workflow that is started, or the signal that is awaited.
	name       string
	deployment string
	// input is what is handed to it; the value of set and complete; nil for the default.
	input *template
	// retry is passed on to the server, as in the contract's runStep.
	retry                   json.RawMessage
	timeout, attemptTimeout time.Duration
	// grace is how long a child may take to end by itself when nobody needs it any more.
	grace time.Duration
	// attributes are those of the child or run that is started; nil for none.
	attributes *template
	// key is unique among the live runs of what is started; nil for none.
	key *template
	// pause and until are those of a wait.
	pause time.Duration
	until *template
	// async lets the function of a call accept it, and send its result later.
	async bool
	// limits are those of which each attempt needs a place, and priority is by how much it goes before others.
	limits   []limitUse
	priority time.Duration
	// delay is how long after the step the run starts that it starts.
	delay    time.Duration
	http     *httpAction
	hook     *hookAction
	approval *approvalAction
	respond  *respondAction
	signal   *signalAction
	// lookBack is how old a signal may be that is awaited, and how long one is kept that is sent.
	lookBack time.Duration
	// schema is that of the value of set.
	schema *schema.Schema
	// code and message are those of fail. Set has a code for values that cannot be evaluated.
	code    string
	message *template
	// many is what steps with a body have: map, loop and plan.
	many *many
}

// catch says what follows from a failure.
type catch struct {
	codes []string // empty for all
	to    int      // plus one; 0 for none
	then  outcome
}

// outcome is what becomes of the run after a catch.
type outcome string

const (
	thenContinue outcome = "continue"
	thenComplete outcome = "complete"
	thenFail     outcome = "fail"
)

// Parse compiles a document in YAML or JSON. If it has faults, the error is a [Faults] with all of them.
func Parse(document []byte) (*Program, error) {
	root, faults := ReadNodes(document)
	if root == nil {
		return nil, faults.sorted()
	}
	return compileNode(root, faults)
}

// Compile is [Parse] for a document that has been read.
func Compile(root *Node) (*Program, error) { return compileNode(root, nil) }

// compileNode compiles a document that has the given faults already.
func compileNode(root *node, faults Faults) (*Program, error) {
	text := root.appendJSON(nil)
	memory := memoryPerByte * len(text)
	r := reader{faults: &faults, partial: len(faults) > 0, memory: &memory, objects: map[*node]bool{}}
	p := r.program(root)
	p.digest, p.size = sha256.Sum256(text), memory
	r.check(p)
	if len(faults) > 0 {
		return nil, faults.sorted()
	}
	p.meaning = sha256.Sum256(root.Sorted(r.objects).appendJSON(nil))
	return p, nil
}

const (
	// memoryPerByte estimates the memory of a program besides that of its expressions and schemas.
	memoryPerByte = 64
	// maxMemory limits the memory of a program, as far as schemas take it.
	maxMemory = 48 << 20
)

// Size returns an estimate of the memory that the program takes, in bytes.
func (p *Program) Size() int { return p.size }

// Digest returns the SHA-256 of the document's values as JSON, in their order. Comments and spaces do not count.
func (p *Program) Digest() []byte { return p.digest[:] }

// Equal reports whether the documents of two programs have the same values. The order of the fields of flows, steps and
// their settings does not count; that of the steps does, and that of the fields of values.
func (p *Program) Equal(other *Program) bool { return p.meaning == other.meaning }

// Build returns the build of the deployment of a document with the digest.
func Build(digest []byte) string { return hex.EncodeToString(digest[:8]) }

// program reads the document itself.
func (r *reader) program(root *node) *Program {
	o := r.object(root)
	p := &Program{byID: map[string]int{}}
	if format := o.get("format"); format != nil && (format.kind != kindNumber || format.text != "1") {
		r.faults.add(format, CodeType, "this server knows format %d", Format)
	}
	p.Name = o.name("flow")
	if p.Name == "" && o.node.get("flow") == nil {
		r.faults.add(root, CodeMissing, `want "flow", the name of the flow`)
	}
	if p.Name != "" && !ValidName(p.Name) {
		r.faults.add(o.node.get("flow"), CodeType, "the name of a flow has 1 to %d letters, digits, - and _", maxName)
	}
	if p.Name == reservedName {
		r.faults.add(o.node.get("flow"), CodeType,
			"the name %q is reserved: /v1/flows/schema is the schema of documents", p.Name)
	}
	p.Description = o.prose("describe")
	p.Deployment = o.deployment()
	p.Input, p.schema = r.schema(o.get("input"))
	p.drain = o.choice("onFailure", "stop", "drain") == "drain"
	r.drain = p.drain
	p.timeout = o.duration("timeout")
	r.defaults = r.readDefaults(o.get("defaults"))
	r.deployment = p.Deployment
	r.readSteps(p, o.get("steps"), root)
	p.goals = o.stepIDs("goals")
	p.output = o.template("output", usage{place: placeOutput})
	o.end()
	return p
}

// schema compiles a JSON Schema, and returns it as JSON too.
func (r *reader) schema(n *node) (json.RawMessage, *schema.Schema) {
	if n == nil {
		return nil, nil
	}
	text := n.appendJSON(nil)
	if *r.memory > maxMemory {
		return text, nil // which is a fault already
	}
	compiled, err := schema.Compile(text)
	if err != nil {
		r.faults.add(n, CodeType, "it is not a JSON Schema: %v", err)
	}
	if *r.memory += compiled.Size(); *r.memory > maxMemory {
		r.faults.add(n, CodeType, "the schemas of the document are too large: compiled they would take more than %d MiB; "+
			"use fewer, and smaller patterns", maxMemory>>20)
	}
	return text, compiled
}

// CheckInput checks an input by the flow's schema: see [schema.Schema.Check].
func (p *Program) CheckInput(input json.RawMessage, stopped func() error) error {
	return p.schema.Check(input, stopped)
}

// readSteps reads all steps. The IDs are known before the first one is read, so that they can name each other.
func (r *reader) readSteps(p *Program, n, root *node) {
	if n == nil || n.kind != kindObject || len(n.names) == 0 {
		r.faults.add(orNode(n, root), CodeMissing, `want "steps", an object with at least one step`)
		return
	}
	if len(n.names) > MaxSteps {
		r.faults.add(n, CodeType, "%d steps; the limit is %d", len(n.names), MaxSteps)
		return
	}
	for i, id := range n.names {
		if !ValidName(id) {
			r.faults.add(n.items[i], CodeType, "the ID %q is not 1 to %d letters, digits, - and _", id, maxName)
		}
		if strings.HasPrefix(id, contract.AttributesID) {
			r.faults.add(n.items[i], CodeType, "the ID %q begins with %s, which is reserved", id, contract.AttributesID)
		}
		p.byID[id] = i
	}
	r.ids = p.byID
	for i, id := range n.names {
		p.steps = append(p.steps, r.readStep(id, n.items[i]))
	}
	for i := range p.steps {
		for _, needed := range p.steps[i].needs {
			p.steps[needed].wantedBy = append(p.steps[needed].wantedBy, i)
		}
	}
	for i := range p.steps {
		for _, c := range p.steps[i].catches {
			r.target(p, i, c)
		}
	}
}

// target marks the step that a catch leads to.
func (r *reader) target(p *Program, from int, c catch) {
	if c.to == 0 {
		return
	}
	to := &p.steps[c.to-1]
	switch {
	case c.to-1 == from:
		r.faults.add(to.at, CodeCycle, "a catch of %s leads to %s itself", to.id, to.id)
	case to.target != 0 && to.target != from+1:
		r.faults.add(to.at, CodeConflict, "catches of both %s and %s lead to %s: each needs a step of its own",
			p.steps[to.target-1].id, p.steps[from].id, to.id)
	case len(to.needs) > 0:
		r.faults.add(to.at, CodeConflict, "%s begins when %s fails, so it cannot have needs", to.id, p.steps[from].id)
	default:
		to.target = from + 1
		return
	}
	r.partial = true
}
