package why

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/await"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/hold"
)

var now = time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC)

func at(d time.Duration) *time.Time { t := now.Add(d); return &t }

// lease is the handle of a lease that began 3 s ago.
const lease = "rh_01KAP8A0A8" + "0000000000000000"

// sdkHook is the ID of a hook that the Workflow SDK made.
const sdkHook = "hook_01JD5A8R8D0000000000000000"

// run returns facts about a run of a plain function.
func run(change ...func(*Facts)) Facts {
	f := Facts{Now: now, Run: entities.Run{
		ID: "wrun_1", DeploymentID: "shop", Driver: entities.DriverServer, Status: entities.RunRunning, LastSeq: 9,
		UpdatedAt: *at(-time.Minute), CreatedAt: *at(-time.Hour),
	}}
	f.Watch.QuietUntil = *at(30 * time.Second)
	for _, c := range change {
		c(&f)
	}
	return f
}

func ofClient(f *Facts) { f.Run.Driver = entities.DriverClient }

func pending(f *Facts) { f.Run.Status = entities.RunPending }

// work returns a registered message that is due.
func work(w message.Work, change ...func(*Message)) Message {
	m := Message{
		ID: "msg_1", DeploymentID: "shop", Work: w, Ticketed: true, DueAt: *at(-time.Second), CreatedAt: *at(-time.Minute),
		Registered: true,
	}
	for _, c := range change {
		c(&m)
	}
	return m
}

func with(w message.Work, change ...func(*Message)) func(*Facts) {
	return func(f *Facts) { f.Messages = append(f.Messages, work(w, change...)) }
}

func fails(text string) func(*Message) {
	return func(m *Message) {
		m.LastError, m.DueAt, m.DeliveryCount, m.FirstFailedAt = text, *at(time.Minute), 7, at(-time.Hour)
	}
}

func paused(f *Facts) { f.Run.Project, f.PausedAt = "shop", at(-time.Hour) }

func pauseOf(kind hold.Kind, name string) *hold.Pause {
	return &hold.Pause{Subject: hold.Subject{Kind: kind, Name: name}, ID: 7, PausedBy: "anna", PausedAt: *at(-time.Hour)}
}

func pausing(kind hold.Kind, name string) func(*Facts) {
	return func(f *Facts) {
		f.Run.WorkflowName = "order"
		p := pauseOf(kind, name)
		f.Pauses = map[hold.Subject]hold.Pause{p.Subject: *p}
	}
}

func held(m *Message) { m.HeldBy = new(int64(7)) }

func unreached(m *Message) { m.UnreachedCount = 4 }

func due(d time.Duration) func(*Message) { return func(m *Message) { m.DueAt = *at(d) } }

func fresh(m *Message) { m.Ticketed = false }

func blocked(code string) func(*Message) {
	return func(m *Message) { m.Blocked = &message.Blocked{Code: code, Message: "no"} }
}

func taken(m *Message) { m.Lease, m.Holder, m.DueAt = lease, "proc_1", *at(time.Minute) }

func step(s Step, change ...func(*Message)) func(*Facts) {
	return func(f *Facts) {
		s.ID, s.CreatedAt, s.UpdatedAt = "charge", *at(-time.Minute), *at(-time.Minute)
		if s.Status == "" {
			s.Status = entities.StepPending
		}
		if len(change) > 0 {
			m := work(message.WorkStep, change...)
			s.Message = &m
		}
		f.Steps = append(f.Steps, s)
	}
}

func called() *entities.StepSpec { return &entities.StepSpec{DeploymentID: "shop", MaxAttempts: 5} }

func child() *entities.StepSpec { return &entities.StepSpec{ChildID: "wrun_2"} }

func hook(h HookFact) func(*Facts) { return func(f *Facts) { f.Hooks = append(f.Hooks, h) } }

func wait(d time.Duration) func(*Facts) {
	return func(f *Facts) { f.Waits = append(f.Waits, WaitFact{ID: "nap", ResumeAt: at(d)}) }
}

func awaits(a await.Pending) func(*Facts) { return func(f *Facts) { a.Seq, f.Run.Await = 9, &a } }

// TestReasons checks the kinds of reasons, the verdict, and when the run goes on.
func TestReasons(t *testing.T) {
	t.Parallel()
	none := func(*Message) {}
	for name, tt := range map[string]struct {
		facts   Facts
		verdict Verdict
		next    time.Duration // 0 if unknown
		kinds   []Kind
	}{
		"nothing":             {run(), VerdictWorking, 0, []Kind{Unscheduled}},
		"nothing, of the SDK": {run(ofClient), VerdictWorking, 0, []Kind{Unscheduled}},
		"stranded": {run(func(f *Facts) { f.Watch = cluster.Watch{Reason: "step a is pending", WakeAt: at(40 * time.Second)} }, step(Step{Spec: called()})),
			VerdictStranded, 40 * time.Second, []Kind{Stranded, StepQueued}},
		"called":                  {run(with("run", taken)), VerdictWorking, 0, []Kind{Called}},
		"lease over":              {run(with("run", taken, due(-1))), VerdictWorking, 0, []Kind{Queued}},
		"queued":                  {run(with("run")), VerdictWorking, 0, []Kind{Queued}},
		"has a ticket":            {run(with("run", due(30*time.Second))), VerdictWorking, 0, []Kind{Queued}},
		"server died":             {run(with("run", fails(message.ServerDied), due(0))), VerdictWorking, 0, []Kind{Queued}},
		"server stopped":          {run(with("run", fails(message.ServerStopped), unreached, due(0))), VerdictWorking, 0, []Kind{Queued}},
		"no memory":               {run(with("run", fails(message.NoMemory), unreached)), VerdictWorking, 0, []Kind{Queued}},
		"paused, not put off yet": {run(paused, with("run")), VerdictBlocked, 0, []Kind{ProjectPaused, Queued}},
		"paused":                  {run(paused, with("run", fails(message.ProjectPaused), unreached)), VerdictBlocked, 0, []Kind{ProjectPaused}},
		"paused, a step":          {run(paused, step(Step{Spec: called()}, fails(message.ProjectPaused), unreached)), VerdictBlocked, 0, []Kind{ProjectPaused}},
		"resumed a moment ago":    {run(with("run", fails(message.ProjectPaused), unreached)), VerdictWorking, 0, []Kind{Unscheduled}},
		"parked":                  {run(with("run", fails("no"), func(m *Message) { m.ParkedAt = at(0) })), VerdictBlocked, 0, []Kind{Parked}},
		"missing":                 {run(with("run", fails("not registered"), unreached, func(m *Message) { m.Registered = false })), VerdictBlocked, time.Minute, []Kind{DeploymentMissing}},
		"missing, not tried yet":  {run(with("run", func(m *Message) { m.Registered = false })), VerdictBlocked, 0, []Kind{DeploymentMissing}},
		"unreachable":             {run(with("run", fails("refused"), unreached)), VerdictRetrying, time.Minute, []Kind{Unreachable}},
		"fails":                   {run(with("run", fails("500"))), VerdictRetrying, time.Minute, []Kind{FunctionFails}},
		"closes the connection": {run(with("run", fails(message.ConnectionClosed+": EOF"), unreached)),
			VerdictRetrying, time.Minute, []Kind{ConnectionClosed}},
		"closed it once, and is away": {run(with("run", fails("refused"), unreached, func(m *Message) { m.DisconnectCount = 1 })),
			VerdictRetrying, time.Minute, []Kind{Unreachable}},
		"diverged":                   {run(with("run", fails("500"), blocked("diverged"))), VerdictBlocked, time.Minute, []Kind{Diverged}},
		"diverged, then unreachable": {run(with("run", fails("refused"), blocked("diverged"), unreached)), VerdictRetrying, time.Minute, []Kind{Unreachable}},
		"blocked":                    {run(with("run", fails("500"), blocked("panic"))), VerdictBlocked, time.Minute, []Kind{FunctionRefuses}},
		"answer refused":             {run(with("run", fails(message.AnswerRefused+"command 1"))), VerdictBlocked, time.Minute, []Kind{AnswerRefused}},
		"task fails":                 {run(with("deadline", fails("the database"))), VerdictRetrying, time.Minute, []Kind{TaskFails}},
		"task of a missing deployment": {run(with("deadline", func(m *Message) { m.Registered = false }), hook(HookFact{ID: "h"})),
			VerdictWaiting, 0, []Kind{Hook}},
		"starts later":               {run(pending, with("run", fresh, due(time.Hour))), VerdictScheduled, time.Hour, []Kind{StartDelay}},
		"starts later, of the SDK":   {run(ofClient, pending, with("", fresh, due(time.Hour))), VerdictScheduled, time.Hour, []Kind{StartDelay}},
		"message is due":             {run(ofClient, with("")), VerdictWorking, 0, []Kind{Client}},
		"app works":                  {run(ofClient, with("", taken), step(Step{Status: entities.StepRunning})), VerdictWorking, 0, []Kind{Called, StepRunning}},
		"app fails":                  {run(ofClient, with("", fails("500"))), VerdictRetrying, time.Minute, []Kind{FunctionFails}},
		"backstop and hook":          {run(ofClient, with("", fresh, due(time.Hour)), hook(HookFact{ID: "h"})), VerdictWaiting, 0, []Kind{Hook}},
		"backstop alone":             {run(ofClient, with("", fresh, due(time.Hour))), VerdictWorking, 0, []Kind{Unscheduled}},
		"SDK's step is pending":      {run(ofClient, step(Step{})), VerdictWorking, 0, []Kind{StepQueued}},
		"SDK's step is retried":      {run(ofClient, step(Step{RetryAfter: at(time.Minute), ResultSeq: 7})), VerdictRetrying, time.Minute, []Kind{StepBackoff}},
		"SDK's own hook":             {run(ofClient, hook(HookFact{ID: "h", IsSystem: true})), VerdictWaiting, 0, []Kind{Hook}},
		"SDK's own hook and a sleep": {run(ofClient, hook(HookFact{ID: "h", IsSystem: true}), wait(time.Hour)), VerdictWaiting, time.Hour, []Kind{Wait}},

		"step queued":  {run(step(Step{Spec: called()}, none)), VerdictWorking, 0, []Kind{StepQueued}},
		"step running": {run(step(Step{Spec: called(), Status: entities.StepRunning}, taken)), VerdictWorking, 0, []Kind{StepRunning}},
		"step lost its server": {run(step(Step{Spec: called(), Status: entities.StepRunning}, fails(message.ServerDied), due(0))),
			VerdictWorking, 0, []Kind{StepQueued}},
		"step is retried": {run(step(Step{Spec: called(), RetryAfter: at(2 * time.Minute)}, fails(`{"message":"busy"}`)), hook(HookFact{ID: "h"})),
			VerdictRetrying, 2 * time.Minute, []Kind{StepBackoff, Hook}},
		"step is due again":    {run(step(Step{Spec: called(), RetryAfter: at(-1)}, fails(`{"message":"busy"}`), due(0))), VerdictWorking, 0, []Kind{StepQueued}},
		"step's function away": {run(step(Step{Spec: called(), Status: entities.StepRunning}, fails("refused"), unreached)), VerdictRetrying, time.Minute, []Kind{Unreachable}},
		"step that the server cannot record": {run(step(Step{Spec: called(), Status: entities.StepRunning}, fails("the database"))),
			VerdictRetrying, time.Minute, []Kind{FunctionFails}},
		"step in the call":        {run(with("run", taken), step(Step{Status: entities.StepRunning})), VerdictWorking, 0, []Kind{Called, StepRunning}},
		"step without a call":     {run(step(Step{Status: entities.StepRunning})), VerdictWorking, 0, []Kind{StepQueued}},
		"child":                   {run(step(Step{Spec: child(), ChildStatus: entities.RunRunning})), VerdictWaiting, 0, []Kind{Child}},
		"child ended":             {run(step(Step{Spec: child(), ChildStatus: entities.RunFailed}, func(m *Message) { m.Work = "report" })), VerdictWorking, 0, []Kind{StepQueued}},
		"child deleted":           {run(step(Step{Spec: child()})), VerdictWorking, 0, []Kind{StepQueued}},
		"sleep":                   {run(wait(time.Hour), with("run", due(time.Hour))), VerdictWaiting, time.Hour, []Kind{Wait}},
		"sleep, and events":       {run(wait(time.Hour), with("run", due(30*time.Second))), VerdictWorking, time.Hour, []Kind{Queued, Wait}},
		"sleep over":              {run(wait(-time.Second), with("run", due(-time.Second))), VerdictWorking, 0, []Kind{Queued}},
		"hooks":                   {run(hook(HookFact{ID: "inbox:notes"}), hook(HookFact{ID: "s", Signal: "paid"}), hook(HookFact{ID: "w", IsWebhook: true}), hook(HookFact{ID: "a", IsApproval: true}), hook(HookFact{ID: "h"})), VerdictWaiting, 0, []Kind{Hook, Webhook, Signal, Approval, Inbox}},
		"cancelling":              {run(func(f *Facts) { f.Run.ForcedAt = at(time.Minute) }, wait(time.Hour)), VerdictWorking, time.Hour, []Kind{Cancelling, Wait}},
		"awaits one of two waits": {run(wait(time.Hour), wait(2*time.Hour), awaits(await.Pending{At: at(2 * time.Hour)}), with("run", due(2*time.Hour))), VerdictWaiting, 2 * time.Hour, []Kind{Wait}},
		"awaits no wait's time":   {run(wait(time.Hour), awaits(await.Pending{At: at(time.Second)}), with("run", due(time.Second))), VerdictWaiting, time.Second, []Kind{Wait}},
		"awaits steps and a wait": {run(wait(time.Hour), step(Step{Spec: called()}, taken), awaits(await.Pending{All: []await.List{{Steps: []string{"charge"}, At: at(time.Hour)}}})),
			VerdictWorking, time.Hour, []Kind{StepRunning, Wait}},
		"awaited before its last event": {run(wait(time.Hour), func(f *Facts) { f.Run.Await = &await.Pending{Seq: 8, At: at(2 * time.Hour)} }),
			VerdictWaiting, time.Hour, []Kind{Wait}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := Explain(tt.facts)
			if diff := cmp.Diff(tt.kinds, kinds(e)); diff != "" {
				t.Errorf("kinds (-want +got):\n%s", diff)
			}
			if e.Verdict != tt.verdict {
				t.Errorf("got verdict %s, want %s", e.Verdict, tt.verdict)
			}
			var next time.Duration
			if e.Next != nil {
				next = e.Next.At.Sub(now)
			}
			if next != tt.next {
				t.Errorf("the run goes on in %s, want %s", next, tt.next)
			}
		})
	}
}

func kinds(e Explanation) (list []Kind) {
	for _, r := range e.Reasons {
		list = append(list, r.Kind)
	}
	return list
}

// TestReasonsSayWhoAndWhat compares whole reasons.
func TestReasonsSayWhoAndWhat(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		facts Facts
		want  Reason
	}{
		"called": {run(with("run", taken, func(m *Message) { m.Host = "h" })), Reason{
			Kind: Called, MessageID: "msg_1", DeploymentID: "shop", Server: "proc_1", Host: "h", Since: claimedAt(lease),
			Until: at(time.Minute),
		}},
		"paused": {run(paused), Reason{
			Kind: ProjectPaused, Name: "shop", Since: at(-time.Hour), Remedies: []Remedy{PutProject, CancelRun},
		}},
		"a paused workflow": {run(pausing(hold.Workflow, "order"), with("run", held)), Reason{
			Kind: Paused, Pause: pauseOf(hold.Workflow, "order"), Since: at(-time.Hour), Remedies: []Remedy{RemovePause, CancelRun},
		}},
		"a paused deployment of a step": {run(pausing(hold.Deployment, "mail"), with("run", held, func(m *Message) { m.DeploymentID = "mail" })), Reason{
			Kind: Paused, Pause: pauseOf(hold.Deployment, "mail"), Since: at(-time.Hour), Remedies: []Remedy{RemovePause, CancelRun},
		}},
		"a paused deployment that nothing waits for": {run(pausing(hold.Deployment, "mail")), Reason{
			Kind: Unscheduled, Since: at(-time.Minute), Until: at(30 * time.Second),
		}},
		"unreachable": {run(with("run", fails("refused"), unreached)), Reason{
			Kind: Unreachable, MessageID: "msg_1", DeploymentID: "shop", Failures: 4, Since: at(-time.Hour), At: at(time.Minute),
			Error: &Error{Message: "refused"}, Remedies: []Remedy{RetryMessage, PutDeployment},
		}},
		"excused": {run(with("", fails("500"), func(m *Message) { m.ExcusedCount = 5 })), Reason{
			Kind: FunctionFails, MessageID: "msg_1", DeploymentID: "shop", Failures: 2, Since: at(-time.Hour), At: at(time.Minute),
			Error: &Error{Message: "500"}, Remedies: []Remedy{RetryMessage},
		}},
		"diverged": {run(with("run", fails("500"), blocked("diverged"))), Reason{
			Kind: Diverged, MessageID: "msg_1", DeploymentID: "shop", Failures: 7, Since: at(-time.Hour), At: at(time.Minute),
			Error: &Error{Code: "diverged", Message: "no"}, Remedies: []Remedy{PutDeployment, RetryMessage},
		}},
		"attempt 3 of 5 comes": {run(step(Step{Name: "n", Spec: called(), RetryAfter: at(time.Minute), ErrorCode: "busy", ResultSeq: 7},
			fails(`{"message":"bank","code":"busy"}`), func(m *Message) { m.DeliveryCount = 2 })), Reason{
			Kind: StepBackoff, StepID: "charge", Name: "n", MessageID: "msg_1", DeploymentID: "shop", Attempt: 3, MaxAttempts: 5,
			Since: at(-time.Minute), At: at(time.Minute), Error: &Error{Code: "busy", Message: "bank", Seq: 7},
			Remedies: []Remedy{RetryMessage},
		}},
		"attempt 3 of 5 runs": {run(step(Step{Spec: called(), Status: entities.StepRunning}, taken, func(m *Message) { m.DeliveryCount = 3 })), Reason{
			Kind: StepRunning, StepID: "charge", MessageID: "msg_1", DeploymentID: "shop", Server: "proc_1", Attempt: 3, MaxAttempts: 5,
			Since: claimedAt(lease), Until: at(time.Minute),
		}},
		"SDK's step is retried": {run(ofClient, step(Step{RetryAfter: at(time.Minute), Attempt: 2, ErrorCode: "E", ResultSeq: 7})), Reason{
			Kind: StepBackoff, StepID: "charge", DeploymentID: "shop", Attempt: 3, Since: at(-time.Minute), At: at(time.Minute),
			Error: &Error{Code: "E", Seq: 7},
		}},
		"child": {run(step(Step{Name: "ship", Spec: child(), ChildStatus: entities.RunRunning})), Reason{
			Kind: Child, StepID: "charge", Name: "ship", ChildID: "wrun_2", ChildStatus: entities.RunRunning, Since: at(-time.Minute),
			Remedies: []Remedy{ExplainRun},
		}},
		"signal": {run(hook(HookFact{ID: "s", Signal: "paid", Condition: "true", CreatedAt: *at(0)})), Reason{
			Kind: Signal, HookID: "s", Name: "paid", Condition: "true", Since: at(0), Remedies: []Remedy{PostSignal, ResumeHook},
		}},
		"hook of the Workflow SDK": {run(hook(HookFact{ID: sdkHook, Token: "approval:1", CreatedAt: *at(0)})), Reason{
			Kind: Hook, HookID: sdkHook, Name: "approval:1", Since: at(0), Remedies: []Remedy{ResumeHook},
		}},
		"hook that has a name": {run(hook(HookFact{ID: "agree", Token: "rh_1", CreatedAt: *at(0)})), Reason{
			Kind: Hook, HookID: "agree", Since: at(0), Remedies: []Remedy{ResumeHook},
		}},
		"webhook of the Workflow SDK": {run(hook(HookFact{ID: sdkHook, Token: "x7Gk", IsWebhook: true, CreatedAt: *at(0)})), Reason{
			Kind: Webhook, HookID: sdkHook, Since: at(0), Remedies: []Remedy{ResumeHook},
		}},
		"inbox": {run(hook(HookFact{ID: "inbox:notes", CreatedAt: *at(0)})), Reason{
			Kind: Inbox, HookID: "inbox:notes", Name: "notes", Since: at(0), Remedies: []Remedy{SendMessage},
		}},
		"queued": {run(with("run"), func(f *Facts) { f.Backlog = 212 }), Reason{
			Kind: Queued, MessageID: "msg_1", DeploymentID: "shop", Since: at(-time.Second), Backlog: 212,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, Explain(tt.facts).Reasons[0]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if claimedAt(lease) == nil || claimedAt("rh_1") != nil {
		t.Error("the time of a lease is not read from its handle")
	}
}

func TestEndedRunsHaveNoReasons(t *testing.T) {
	t.Parallel()
	for _, s := range []entities.RunStatus{entities.RunCompleted, entities.RunFailed, entities.RunCancelled} {
		f := run(with("run"), hook(HookFact{ID: "h"}))
		f.Run.Status = s
		if e := Explain(f); e.Verdict != VerdictEnded || len(e.Reasons) > 0 {
			t.Errorf("%s: got %+v", s, e)
		}
	}
}

// TestEveryOpenRunHasAReason explains random facts. Each run has a reason of a known kind, in their order, and is
// called stranded if and only if the sweeper would find it.
func TestEveryOpenRunHasAReason(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		f := drawFacts(rt)
		e := Explain(f)
		if len(e.Reasons) == 0 {
			rt.Fatal("no reason")
		}
		last := 0
		for _, r := range e.Reasons {
			if r.Kind.rank() < last {
				rt.Fatalf("kind %q is out of order or unknown", r.Kind)
			}
			last = r.Kind.rank()
			for _, remedy := range r.Remedies {
				if !slices.Contains(Remedies(), remedy) {
					rt.Fatalf("remedy %s is unknown", remedy)
				}
			}
		}
		if (e.Verdict == VerdictStranded) != (f.Watch.Reason != "") || e.Verdict == VerdictEnded {
			rt.Fatalf("got verdict %s of a run that is stranded because %q", e.Verdict, f.Watch.Reason)
		}
	})
}

// drawFacts draws any facts about an open run, possible or not.
func drawFacts(t *rapid.T) Facts {
	flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
	when := func(name string) time.Time {
		return now.Add(time.Duration(rapid.Int64Range(-2, 2).Draw(t, name)) * time.Minute)
	}
	maybe := func(name string) *time.Time {
		if !flag(name + " is set") {
			return nil
		}
		at := when(name)
		return &at
	}
	drawMessage := func(works ...message.Work) Message {
		m := Message{
			ID: "m", Work: rapid.SampledFrom(works).Draw(t, "work"), Ticketed: flag("ticket"), Registered: flag("registered"),
			LastError:      rapid.SampledFrom([]string{"", "", "x", `{"message":"m"}`, message.ServerDied, message.AnswerRefused}).Draw(t, "error"),
			UnreachedCount: rapid.IntRange(0, 2).Draw(t, "unreached"), DueAt: when("due"),
		}
		if flag("leased") {
			m.Lease = rapid.SampledFrom([]string{"rh_1", lease}).Draw(t, "lease")
		} else if flag("parked") && flag("really") {
			m.ParkedAt = at(0)
		}
		if flag("blocked") {
			m.Blocked = &message.Blocked{Code: rapid.SampledFrom([]string{"diverged", "panic"}).Draw(t, "code")}
		}
		return m
	}
	f := run()
	f.Run.Status = rapid.SampledFrom([]entities.RunStatus{entities.RunPending, entities.RunRunning}).Draw(t, "status")
	f.Run.Driver = rapid.SampledFrom([]entities.Driver{entities.DriverClient, entities.DriverServer}).Draw(t, "driver")
	f.Watch.Reason = rapid.SampledFrom([]string{"", "lost"}).Draw(t, "stranded")
	f.Run.ForcedAt = maybe("forced")
	if flag("awaits") {
		f.Run.Await = &await.Pending{Seq: rapid.Int64Range(8, 9).Draw(t, "seq"), At: maybe("await")}
	}
	for range rapid.IntRange(0, 2).Draw(t, "messages") {
		f.Messages = append(f.Messages, drawMessage("", "run", "deadline", "cancel", "lookback", "new"))
	}
	for range rapid.IntRange(0, 2).Draw(t, "steps") {
		s := Step{
			Status:     rapid.SampledFrom([]entities.StepStatus{entities.StepPending, entities.StepRunning}).Draw(t, "step"),
			RetryAfter: maybe("retry"), Spec: rapid.SampledFrom([]*entities.StepSpec{nil, called(), child()}).Draw(t, "spec"),
			ChildStatus: rapid.SampledFrom([]entities.RunStatus{"", entities.RunRunning, entities.RunFailed}).Draw(t, "child"),
		}
		if flag("has a message") {
			m := drawMessage("step", "report")
			s.Message = &m
		}
		f.Steps = append(f.Steps, s)
	}
	for range rapid.IntRange(0, 2).Draw(t, "limits") {
		gated(rapid.SampledFrom([]string{"", "m"}).Draw(t, "holder"), func(l *LimitFact) {
			l.Held, l.NotBefore, l.RateAt, l.Limit.Paused = rapid.IntRange(0, 5).Draw(t, "held"), maybe("retry"), maybe("rate"), flag("paused")
		})(&f)
	}
	for range rapid.IntRange(0, 2).Draw(t, "waits") {
		f.Waits = append(f.Waits, WaitFact{ResumeAt: maybe("resume")})
	}
	for range rapid.IntRange(0, 2).Draw(t, "hooks") {
		f.Hooks = append(f.Hooks, HookFact{IsSystem: flag("system"), IsWebhook: flag("webhook")})
	}
	return f
}
