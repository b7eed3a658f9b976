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

// reason is one reason why a run is not done.
type reason api.Reason

// sentences says what each kind of reason means. The dashboard says the same: ui/src/lib/why.ts.
var sentences = map[string]func(r reason) string{
	"stranded": func(r reason) string {
		return "Nothing would move it: " + cmp.Or(r.Detail, "a message is missing") + "."
	},
	"parked": func(r reason) string {
		return fmt.Sprintf("Nothing happens until somebody looks: %s failed %s.", r.call(), r.times())
	},
	"deployment_missing": func(r reason) string {
		return fmt.Sprintf("%s is for deployment %s, which is not registered.", upper(r.call()), r.Deployment)
	},
	"diverged":         func(reason) string { return "The code changed under the run: its log does not fit the function." },
	"function_refuses": func(reason) string { return "The function refuses to go on." },
	"answer_refused": func(reason) string {
		return "The server refuses the function's answer."
	},
	"limit_deadlock": func(r reason) string {
		const text = "%s waits for a slot of %s for ever: %s wait for each other's slots. Cancel one of them."
		return fmt.Sprintf(text, upper(r.waiter()), r.limitAndKey(), strings.Join(r.Circle, " and "))
	},
	"project_paused": func(r reason) string {
		return fmt.Sprintf("Project %s is paused: nothing of it is called until an operator resumes it.", r.Name)
	},
	"limit_paused": func(r reason) string {
		return fmt.Sprintf("%s waits for limit %s, which is paused.", upper(r.waiter()), r.Limit)
	},
	"limit_full": func(r reason) string {
		const text = "%s waits for a slot of %s: %d of %d are taken%s%s."
		return fmt.Sprintf(text, upper(r.waiter()), r.limitAndKey(), r.Held, r.Slots, r.holders(), r.ahead())
	},
	"deployment_full": func(r reason) string {
		const text = "%s waits: %d of %d calls that deployment %s may have at once are under way%s."
		return fmt.Sprintf(text, upper(r.call()), r.Held, r.Slots, r.Deployment, r.ahead())
	},
	"rate": func(r reason) string {
		return fmt.Sprintf("%s waits for the rate of %s%s.", upper(r.waiter()), r.limitAndKey(), r.ahead())
	},
	"unhealthy": func(r reason) string {
		return fmt.Sprintf("Deployment %s is not called, because it is unhealthy. No attempt is used up.", r.Deployment)
	},
	"unreachable": func(r reason) string {
		const text = "Deployment %s cannot be reached: it was tried %s. No attempt is used up."
		return fmt.Sprintf(text, r.Deployment, r.times())
	},
	"connection_closed": func(r reason) string {
		return fmt.Sprintf("%s was taken %s, and the connection closed before an answer: look at the app's log.",
			upper(r.call()), r.times())
	},
	"function_fails": func(r reason) string {
		return fmt.Sprintf("%s has failed %s.", upper(r.call()), r.times())
	},
	"task_fails": func(r reason) string { return fmt.Sprintf("A task of the server has failed %s.", r.times()) },
	"step_backoff": func(r reason) string {
		return fmt.Sprintf("Step %s failed and is tried again: %s.", r.step(), r.attempt())
	},
	"cancelling":   func(reason) string { return "It was asked to cancel, and is ended when its grace is over." },
	"called":       func(r reason) string { return "Its function is being called at deployment " + r.Deployment + "." },
	"step_running": func(r reason) string { return fmt.Sprintf("Step %s is running: %s.", r.step(), r.attempt()) },
	"step_queued":  func(r reason) string { return "Step " + r.step() + " waits for a free slot" + r.backlog() + "." },
	"queued":       func(r reason) string { return "The call of its function waits for a free slot" + r.backlog() + "." },
	"client":       func(r reason) string { return "The app has not taken the message that wakes it" + r.backlog() + "." },
	"unscheduled": func(reason) string {
		return "Something has just happened, and what follows from it is not there yet."
	},
	"start_delay": func(reason) string { return "It was started for a later time." },
	"child": func(r reason) string {
		return fmt.Sprintf("Step %s waits for child %s, which is %s.", r.step(), r.ChildID, r.ChildStatus)
	},
	"hook":    func(r reason) string { return "Nobody has resumed hook " + r.HookID + "." },
	"webhook": func(r reason) string { return "No request has come to webhook " + r.HookID + "." },
	"signal": func(r reason) string {
		return fmt.Sprintf("Hook %s waits for a signal %s.", r.HookID, r.Name)
	},
	"approval": func(r reason) string {
		return fmt.Sprintf("Approval %s is not decided: it has %s.", r.HookID, r.votes())
	},
	"wait":  func(r reason) string { return strings.TrimSpace("It sleeps "+r.WaitID) + "." },
	"inbox": func(r reason) string { return "Inbox " + r.Name + " is open for messages." },
}

// call names the call that a reason is about.
func (r reason) call() string {
	if r.StepID != "" {
		return "the call of step " + r.step()
	}
	return "the call of its function"
}

// waiter names what waits for a slot of a limit.
func (r reason) waiter() string {
	if r.StepID != "" {
		return "step " + r.step()
	}
	return "it"
}

// limitAndKey names the limit, and the key whose slots count.
func (r reason) limitAndKey() string {
	if r.Key == "" || r.InAll {
		return "limit " + r.Limit
	}
	return "limit " + r.Limit + ", key " + r.Key
}

func (r reason) holders() string {
	switch {
	case len(r.Holders) == 0:
		return ""
	case r.Held == 1:
		return ", by " + r.Holders[0].RunID
	default:
		return ", by " + r.Holders[0].RunID + " and others"
	}
}

func (r reason) votes() string {
	if r.Votes == 1 {
		return "one vote"
	}
	return fmt.Sprintf("%d votes", r.Votes)
}

func (r reason) ahead() string {
	switch r.Ahead {
	case 0:
		return "; it is next"
	case 1:
		return "; one is before it"
	default:
		return fmt.Sprintf("; %d are before it", r.Ahead)
	}
}

// step names the step, with its ID if that differs.
func (r reason) step() string {
	if r.Name == "" || r.Name == r.StepID {
		return r.StepID
	}
	return r.Name + " (" + r.StepID + ")"
}

func (r reason) attempt() string {
	if r.MaxAttempts == 0 {
		return fmt.Sprintf("attempt %d", r.Attempt)
	}
	return fmt.Sprintf("attempt %d of %d", r.Attempt, r.MaxAttempts)
}

func (r reason) times() string {
	if r.Failures == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", r.Failures)
}

func (r reason) backlog() string {
	if r.Backlog <= 1 {
		return ""
	}
	return fmt.Sprintf("; %d messages are due", r.Backlog)
}

func (r reason) lastError() string {
	e := orZero(r.Error)
	return errorText(e.Code, e.Message)
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// sentence says what the reason means. A newer server may send kinds that have no sentence.
func (r reason) sentence() string {
	if say, ok := sentences[string(r.Kind)]; ok {
		return say(r)
	}
	return strings.ReplaceAll(string(r.Kind), "_", " ") + "."
}

// remedies are the commands of the operations that the API names.
var remedies = map[string]func(run string, r reason) string{
	"retryMessage":   func(_ string, r reason) string { return "messages retry " + r.MessageID },
	"discardMessage": func(_ string, r reason) string { return "messages discard " + r.MessageID },
	"putDeployment":  func(_ string, r reason) string { return r.putDeployment() },
	"resumeHook": func(run string, r reason) string {
		if r.Kind == "approval" {
			return fmt.Sprintf("hooks approve %s %s", run, r.HookID)
		}
		return fmt.Sprintf("hooks resume %s --run %s --payload JSON", r.HookID, run)
	},
	"postSignal":  func(_ string, r reason) string { return "signals send " + r.Name + " --data JSON" },
	"sendMessage": func(run string, r reason) string { return fmt.Sprintf("runs send %s %s --payload JSON", run, r.Name) },
	"putLimit":    func(_ string, r reason) string { return r.setLimit() },
	"putProject":  func(_ string, r reason) string { return "projects resume " + r.Name },
	"explainRun":  func(_ string, r reason) string { return "why " + r.ChildID },
	"cancelRun":   func(run string, _ reason) string { return "runs cancel " + run },
}

// setLimit is the command that lets more begin.
func (r reason) setLimit() string {
	switch {
	case r.Kind == "limit_paused":
		return "limits set " + r.Limit + " --no-paused"
	case r.Kind == "rate":
		return "limits set " + r.Limit + " --rate N/TIME"
	case r.InAll:
		return fmt.Sprintf("limits set %s --total %d", r.Limit, r.Slots+1)
	default:
		return fmt.Sprintf("limits set %s --per-key %d", r.Limit, r.Slots+1)
	}
}

// putDeployment is the command that registers the deployment, moves it, or lets it have more calls.
func (r reason) putDeployment() string {
	switch r.Kind {
	case "unreachable":
		return "deployments move " + r.Deployment + " URL"
	case "deployment_full":
		return fmt.Sprintf("deployments add %s URL --max-concurrent %d", r.Deployment, r.Slots+1)
	default:
		return "deployments add " + r.Deployment + " URL"
	}
}

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
		r := reason(r)
		say("- %s%s", r.sentence(), s.times(r))
		if text := r.lastError(); text != "" {
			say("  last error: %s", text)
		}
		for _, name := range r.Remedies {
			if command, ok := remedies[string(name)]; ok {
				say("  stepwell %s", command(c.ID, r))
			}
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
	_, err = io.WriteString(s.Stdout, b.String())
	return err
}

// times says since when a reason exists and when it ends.
func (s *Session) times(r reason) string {
	var parts []string
	switch {
	case r.Since.IsZero():
	case s.RelativeTimes:
		parts = append(parts, "for "+age(s.Now().Sub(r.Since.Time)))
	default:
		parts = append(parts, "since "+s.formatTime(r.Since.Time))
	}
	for _, t := range []struct {
		word string
		at   time.Time
	}{{"goes on", r.At.Time}, {"until", r.Until.Time}} {
		if !t.at.IsZero() {
			parts = append(parts, t.word+" "+s.formatTime(t.at))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
