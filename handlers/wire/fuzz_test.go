package wire

import (
	"bytes"
	"errors"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// FuzzMessage ensures that queue headers never cause panics or server errors, and that valid ones are stored unchanged.
func FuzzMessage(f *testing.F) {
	f.Add("__wkf_workflow_order", "dpl_1", "wrun_1", "key", "60", "86400", "application/cbor", []byte("body"))
	f.Add("__wkf_step_order", "", "", "", "", "", "", []byte(nil))
	f.Add("__a-b_wkf_step_x", "dpl 1", "a/b", "\x00", "-1", "1e3", "text/plain; charset=\xff", []byte{0})
	f.Add("other", "dpl_1", "", "", "2147483648", "999999999999999999999", "a\nb", []byte("{}"))
	f.Fuzz(func(t *testing.T, topic, deployment, run, key, delay, retention, kind string, body []byte) {
		c := echo.New().NewContext(httptest.NewRequest(http.MethodPost, "/", nil), httptest.NewRecorder())
		c.SetParamNames("topic")
		c.SetParamValues(topic)
		c.Request().Header.Set("Vqs-Deployment-Id", deployment)
		var to address
		err := auth.New(auth.Options{Open: true}).Require(auth.Write)(func(c echo.Context) (err error) {
			to, err = (&request{Context: c}).address()
			return err
		})(c)
		wantClientError(t, err)
		if err == nil && (to.topic != topic || to.deployment != deployment || !workflowTopic.MatchString(topic)) {
			t.Errorf("topic %q and deployment %q became %+v", topic, deployment, to)
		}
		h := http.Header{}
		for name, value := range map[string]string{
			"X-Vercel-Workflow-Run-Id": run, "Vqs-Idempotency-Key": key, "Vqs-Delay-Seconds": delay,
			"Vqs-Retention-Seconds": retention, "Content-Type": kind,
		} {
			h.Set(name, value)
		}
		m, err := to.message(h, bytes.NewReader(body))
		wantClientError(t, err)
		if err != nil {
			return
		}
		if kind == "" {
			kind = defaultContentType
		}
		want := message.Message{
			Project: to.project, Topic: to.topic, DeploymentID: to.deployment, RunID: entities.RunID(run),
			ContentType: kind, Body: body, Key: key, Delay: m.Delay, Retention: m.Retention,
		}
		if diff := cmp.Diff(want, m, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("message differs (-want +got):\n%s", diff)
		}
		for _, counted := range []struct {
			text string
			got  time.Duration
		}{{delay, m.Delay}, {retention, m.Retention}} {
			n, err := strconv.ParseInt("0"+counted.text, 10, 64)
			if want := time.Duration(n) * time.Second; err != nil || counted.got != want {
				t.Errorf("%q seconds became %s", counted.text, counted.got)
			}
		}
	})
}

// FuzzMessages ensures the same for batches, and that a batch is accepted as a whole or not at all.
func FuzzMessages(f *testing.F) {
	batch := batchOf(f, message.Message{Body: []byte("a"), Key: "k"}, message.Message{Body: []byte("b\r\n-")})
	f.Add(batch)
	for n := range batch { // truncated anywhere
		f.Add(batch[:n])
	}
	f.Add(bytes.ReplaceAll(batch, []byte("\r\n"), []byte("\n")))
	f.Add([]byte("--b\r\n\r\nbody\r\n--b\r\n"))
	f.Add([]byte("--b\r\nVqs-Delay-Seconds: x\r\n\r\n\r\n--b--"))
	f.Add([]byte("--b\r\nno header\r\n\r\n\r\n--b--"))
	f.Add([]byte("--b--"))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.Header.Set("Content-Type", "multipart/mixed; boundary=b")
		messages, err := address{}.messages(r)
		wantClientError(t, err)
		if err != nil {
			return
		}
		if !bytes.Contains(body, []byte("--b--")) {
			t.Errorf("%d messages were taken from a body without an end", len(messages))
		}
		if len(messages) < 1 || len(messages) > maxMessages {
			t.Errorf("got %d messages", len(messages))
		}
		for _, m := range messages {
			if !bytes.Contains(body, m.Body) {
				t.Errorf("body %q is not in the batch", m.Body)
			}
		}
	})
}

// batchOf returns the body of a batch with the boundary b.
func batchOf(t testing.TB, messages ...message.Message) []byte {
	t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	check.NoError(t, w.SetBoundary("b"))
	for _, m := range messages {
		part := check.Value(w.CreatePart(textproto.MIMEHeader{"Vqs-Idempotency-Key": {m.Key}, "Content-Type": {"application/cbor"}}))(t)
		check.Value(part.Write(m.Body))(t)
	}
	check.NoError(t, w.Close())
	return body.Bytes()
}

// wantClientError fails the test on an error that would become a server error.
func wantClientError(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("got %v, which is not an ErrInvalid", err)
	}
}

// TestMultipartBodyMayEndAtLastDelimiter: the line end after the last delimiter is optional.
func TestMultipartBodyMayEndAtLastDelimiter(t *testing.T) {
	t.Parallel()
	whole := batchOf(t, message.Message{Body: []byte("a")})
	for _, body := range [][]byte{whole, bytes.TrimSuffix(whole, []byte("\r\n"))} {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.Header.Set("Content-Type", "multipart/mixed; boundary=b")
		messages, err := address{}.messages(r)
		if err != nil || len(messages) != 1 {
			t.Errorf("%q: got %d messages and error %v, want one message", body, len(messages), err)
		}
	}
}
