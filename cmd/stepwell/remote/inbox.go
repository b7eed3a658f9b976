package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type sendMessageCmd struct {
	RunID   string   `arg:"" name:"run" help:"The run's ID."`
	Inbox   string   `arg:"" help:"The name of the inbox."`
	Payload jsonFlag `short:"p" default:"null" placeholder:"JSON" help:"The message: ${json}."`
	ID      string   `name:"id" placeholder:"ID" help:"The sender's ID for the message, which counts once in the inbox."`

	Wait        bool          `field:"-" help:"Wait for the run's answer, and print it."`
	WaitTimeout time.Duration `field:"-" placeholder:"TIME" help:"Wait at most this long, such as 5m."`
}

// Run sends the message.
func (c sendMessageCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	if err != nil {
		return err
	}
	if c.Wait || c.WaitTimeout > 0 {
		r.params["id"] = cmp.Or(c.ID, rand.Text())
		return c.ask(ctx, s, r)
	}
	sent, raw, err := answerOf[api.SentMessage](ctx, s, r)
	if err != nil {
		return err
	}
	if sent.Repeated {
		s.note("already received")
	}
	return s.printResult(raw, "sent as event %d", sent.Seq)
}

// ask sends the message until the run has answered. It prints the output, and fails with the error if that is the
// answer.
func (c sendMessageCmd) ask(ctx context.Context, s *Session, r request) error {
	var sent api.SentMessage
	var raw json.RawMessage
	err := s.poll(ctx, c.WaitTimeout, func(hold time.Duration) (answered bool, err error) {
		wait := http.Header{"Prefer": {fmt.Sprintf("wait=%d", int(math.Ceil(hold.Seconds())))}}
		raw, err = s.client.doWith(ctx, r.method, r.path(), wait, r.params)
		if err == nil {
			err = s.client.decode(raw, &sent)
		}
		return sent.Answer.Seq > 0, err
	})
	switch refused := sent.Answer.Error; {
	case err != nil:
		return err
	case sent.Answer.Seq == 0:
		return exitError{ExitTimeout, fmt.Errorf(
			"run %s has not answered message %q within %s", c.RunID, r.params["id"], c.WaitTimeout)}
	case refused != nil:
		why := strings.TrimPrefix(refused.Code+": "+refused.Message, ": ")
		return exitError{ExitFailed, fmt.Errorf("run %s refused the message: %s", sent.Answer.RunID, why)}
	default:
		return s.printResult(raw, "%s", sent.Answer.Output)
	}
}
