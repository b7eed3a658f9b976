package why

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
)

// sentences say what each kind of reason means.
var sentences = map[Kind]func(r Reason) string{
	Stranded: func(r Reason) string {
		return "Nothing would move it: " + cmp.Or(r.Detail, "a message is missing") + "."
	},
	Parked: func(r Reason) string {
		return fmt.Sprintf("Nothing happens until somebody looks: %s failed %s.", r.call(), r.times())
	},
	DeploymentMissing: func(r Reason) string {
		return fmt.Sprintf("%s is for deployment %s, which is not registered.", upper(r.call()), r.DeploymentID)
	},
	Diverged:        func(Reason) string { return "The code changed under the run: its log does not fit the function." },
	FunctionRefuses: func(Reason) string { return "The function refuses to go on." },
	AnswerRefused:   func(Reason) string { return "The server refuses the function's answer." },
	LimitDeadlock: func(r Reason) string {
		runs := make([]string, len(r.Circle))
		for i, id := range r.Circle {
			runs[i] = string(id)
		}
		const text = "%s waits for a slot of %s for ever: %s wait for each other's slots. Cancel one of them."
		return fmt.Sprintf(text, upper(r.waiter()), r.limitAndKey(), strings.Join(runs, " and "))
	},
	ProjectPaused: func(r Reason) string {
		return fmt.Sprintf("Project %s is paused: nothing of it is called until an operator resumes it.", r.Name)
	},
	Paused: func(r Reason) string {
		return upper(r.paused()) + ": nothing of it is called until somebody resumes it."
	},
	LimitPaused: func(r Reason) string {
		return fmt.Sprintf("%s waits for limit %s, which is paused.", upper(r.waiter()), r.Limit)
	},
	LimitFull: func(r Reason) string {
		const text = "%s waits for a slot of %s: %d of %d are taken%s%s."
		return fmt.Sprintf(text, upper(r.waiter()), r.limitAndKey(), r.Held, r.Slots, r.holders(), r.ahead())
	},
	DeploymentFull: func(r Reason) string {
		const text = "%s waits: %d of %d calls that deployment %s may have at once are under way%s."
		return fmt.Sprintf(text, upper(r.call()), r.Held, r.Slots, r.DeploymentID, r.ahead())
	},
	Rate: func(r Reason) string {
		return fmt.Sprintf("%s waits for the rate of %s%s.", upper(r.waiter()), r.limitAndKey(), r.ahead())
	},
	Unhealthy: func(r Reason) string {
		return fmt.Sprintf("Deployment %s is not called, because it is unhealthy. No attempt is used up.", r.DeploymentID)
	},
	Unreachable: func(r Reason) string {
		const text = "Deployment %s cannot be reached: it was tried %s. No attempt is used up."
		return fmt.Sprintf(text, r.DeploymentID, r.times())
	},
	ConnectionClosed: func(r Reason) string {
		return fmt.Sprintf("%s was taken %s, and the connection closed before an answer: look at the app's log.",
			upper(r.call()), r.times())
	},
	FunctionFails: func(r Reason) string { return fmt.Sprintf("%s has failed %s.", upper(r.call()), r.times()) },
	TaskFails:     func(r Reason) string { return fmt.Sprintf("A task of the server has failed %s.", r.times()) },
	StepBackoff: func(r Reason) string {
		return fmt.Sprintf("Step %s failed and is tried again: %s.", r.step(), r.attempt())
	},
	Cancelling:  func(Reason) string { return "It was asked to cancel, and is ended when its grace is over." },
	Called:      func(r Reason) string { return "Its function is being called at deployment " + r.DeploymentID + "." },
	StepRunning: func(r Reason) string { return fmt.Sprintf("Step %s is running: %s.", r.step(), r.attempt()) },
	StepQueued:  func(r Reason) string { return "Step " + r.step() + " waits for a free slot" + r.backlog() + "." },
	Queued:      func(r Reason) string { return "The call of its function waits for a free slot" + r.backlog() + "." },
	Client:      func(r Reason) string { return "The app has not taken the message that wakes it" + r.backlog() + "." },
	Unscheduled: func(Reason) string {
		return "Something has just happened, and what follows from it is not there yet."
	},
	StartDelay: func(Reason) string { return "It was started for a later time." },
	Child: func(r Reason) string {
		return fmt.Sprintf("Step %s waits for child %s, which is %s.", r.step(), r.ChildID, r.ChildStatus)
	},
	Hook:    func(r Reason) string { return fmt.Sprintf("Nobody has resumed hook %s.", r.hook()) },
	Webhook: func(r Reason) string { return fmt.Sprintf("No request has come to webhook %s.", r.HookID) },
	Signal:  func(r Reason) string { return fmt.Sprintf("Hook %s waits for a signal %s.", r.HookID, r.Name) },
	Approval: func(r Reason) string {
		return fmt.Sprintf("Approval %s is not decided: it has %s.", r.HookID, r.votes())
	},
	Wait: func(r Reason) string {
		if r.WaitID == "" || entities.IsSDKID(r.WaitID) {
			return "It sleeps."
		}
		return fmt.Sprintf("It sleeps %s.", r.WaitID)
	},
	Inbox: func(r Reason) string { return "Inbox " + r.Name + " is open for messages." },
}

// Sentence says what the reason means. It has no text of payloads or errors.
func (r Reason) Sentence() string { return sentences[r.Kind](r) }

// call names the call that a reason is about.
func (r Reason) call() string {
	if r.StepID != "" {
		return "the call of step " + r.step()
	}
	return "the call of its function"
}

// waiter names what waits for a slot of a limit.
func (r Reason) waiter() string {
	if r.StepID != "" {
		return "step " + r.step()
	}
	return "it"
}

// paused says what is paused, by whom and why.
func (r Reason) paused() string {
	p := r.Pause
	text := fmt.Sprintf("%s %s is paused by %s", p.Kind, entities.Title(p.Name), p.PausedBy)
	if p.Note != "" {
		text += " (" + p.Note + ")"
	}
	return text
}

// limitAndKey names the limit, and the key whose slots count.
func (r Reason) limitAndKey() string {
	if r.Key == "" || r.InAll {
		return "limit " + r.Limit
	}
	return "limit " + r.Limit + ", key " + r.Key
}

func (r Reason) holders() string {
	switch {
	case len(r.Holders) == 0:
		return ""
	case r.Held == 1:
		return fmt.Sprintf(", by %s", r.Holders[0].RunID)
	default:
		return fmt.Sprintf(", by %s and others", r.Holders[0].RunID)
	}
}

func (r Reason) votes() string {
	if r.Votes == 1 {
		return "one vote"
	}
	return fmt.Sprintf("%d votes", r.Votes)
}

func (r Reason) ahead() string {
	switch r.Ahead {
	case 0:
		return "; it is next"
	case 1:
		return "; one is before it"
	default:
		return fmt.Sprintf("; %d are before it", r.Ahead)
	}
}

// step names the step, with its ID if that differs and its author chose it.
func (r Reason) step() string {
	switch {
	case r.Name == "" || r.Name == string(r.StepID):
		return string(r.StepID)
	case entities.IsSDKID(r.StepID):
		return entities.Title(r.Name)
	default:
		return fmt.Sprintf("%s (%s)", r.Name, r.StepID)
	}
}

// hook names the hook: by its token if the Workflow SDK made its ID.
func (r Reason) hook() string {
	if entities.IsSDKID(r.HookID) {
		return cmp.Or(r.Name, string(r.HookID))
	}
	return string(r.HookID)
}

func (r Reason) attempt() string {
	if r.MaxAttempts == 0 {
		return fmt.Sprintf("attempt %d", r.Attempt)
	}
	return fmt.Sprintf("attempt %d of %d", r.Attempt, r.MaxAttempts)
}

func (r Reason) times() string {
	if r.Failures == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", r.Failures)
}

func (r Reason) backlog() string {
	if r.Backlog <= 1 {
		return ""
	}
	return fmt.Sprintf("; %d messages are due", r.Backlog)
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// commands are the commands of the remedies.
var commands = map[Remedy]func(run entities.RunID, r Reason) string{
	RetryMessage:   func(_ entities.RunID, r Reason) string { return "messages retry " + r.MessageID },
	DiscardMessage: func(_ entities.RunID, r Reason) string { return "messages discard " + r.MessageID },
	PutDeployment:  func(_ entities.RunID, r Reason) string { return r.putDeployment() },
	ResumeHook: func(run entities.RunID, r Reason) string {
		if r.Kind == Approval {
			return fmt.Sprintf("hooks approve %s %s", run, quote(r.HookID))
		}
		return fmt.Sprintf("hooks resume %s --run %s --payload JSON", quote(r.HookID), run)
	},
	PostSignal: func(_ entities.RunID, r Reason) string { return "signals send " + quote(r.Name) + " --data JSON" },
	SendMessage: func(run entities.RunID, r Reason) string {
		return fmt.Sprintf("runs send %s %s --payload JSON", run, quote(r.Name))
	},
	PutLimit:   func(_ entities.RunID, r Reason) string { return r.putLimit() },
	PutProject: func(_ entities.RunID, r Reason) string { return "projects resume " + quote(r.Name) },
	RemovePause: func(_ entities.RunID, r Reason) string {
		return fmt.Sprintf("%ss resume %s", r.Pause.Kind, quote(r.Pause.Name))
	},
	ExplainRun: func(_ entities.RunID, r Reason) string { return fmt.Sprintf("why %s", r.ChildID) },
	CancelRun:  func(run entities.RunID, _ Reason) string { return fmt.Sprintf("runs cancel %s", run) },
}

// Commands returns the command lines of the remedies of a reason of the run.
func (r Reason) Commands(run entities.RunID) []string {
	lines := make([]string, len(r.Remedies))
	for i, remedy := range r.Remedies {
		lines[i] = "stepwell " + commands[remedy](run, r)
	}
	return lines
}

// putLimit is the command that lets more begin.
func (r Reason) putLimit() string {
	set := "limits set " + quote(r.Limit)
	switch {
	case r.Kind == LimitPaused:
		return set + " --no-paused"
	case r.Kind == Rate:
		return set + " --rate N/TIME"
	case r.InAll:
		return fmt.Sprintf("%s --total %d", set, r.Slots+1)
	default:
		return fmt.Sprintf("%s --per-key %d", set, r.Slots+1)
	}
}

// putDeployment is the command that registers the deployment, moves it, or lets it have more calls.
func (r Reason) putDeployment() string {
	switch name := quote(r.DeploymentID); r.Kind {
	case Unreachable:
		return "deployments move " + name + " URL"
	case DeploymentFull:
		return fmt.Sprintf("deployments add %s URL --max-concurrent %d", name, r.Slots+1)
	default:
		return "deployments add " + name + " URL"
	}
}

// plainWord matches words that a shell takes as they are.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// quote returns a word for a POSIX shell.
func quote[T ~string](word T) string {
	if plainWord.MatchString(string(word)) {
		return string(word)
	}
	return "'" + strings.ReplaceAll(string(word), "'", `'\''`) + "'"
}
