package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/record"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// names maps the IDs of the recording to those of the replay, and back.
type names struct{ now, was map[string]string }

// add records that an ID of the replay stands for one of the recording. Further IDs for the same one are ignored, and
// the comparison finds them.
func (n names) add(now, was string) {
	_, named := n.now[was]
	_, used := n.was[now]
	if !named && !used {
		n.now[was], n.was[now] = now, was
	}
}

// toNow replaces IDs of the recording by those of the replay. Their lengths are equal, so that frames stay valid.
func (n names) toNow() *strings.Replacer { return replacer(n.now) }

// toThen replaces IDs of the replay by those of the recording.
func (n names) toThen() *strings.Replacer { return replacer(n.was) }

func replacer(names map[string]string) *strings.Replacer {
	var pairs []string
	for old, new := range names {
		pairs = append(pairs, old, new)
	}
	return strings.NewReplacer(pairs...)
}

// content is the content of a sent message.
type content struct{ kind, body string }

// nameMessages records the IDs and contents of the messages that a request sent.
func (r *replay) nameMessages(t *testing.T, e record.Exchange, answer any) {
	t.Helper()
	was, now := messageIDs(e.Answer.Body), messageIDs(answer)
	contents := r.contents(t, e.Request)
	for i := range min(len(was), len(now), len(contents)) {
		r.names.add(now[i], was[i])
		if _, duplicate := r.sent[was[i]]; !duplicate {
			r.sent[was[i]] = contents[i]
		}
	}
}

// messageIDs returns the message IDs in an answer.
func messageIDs(answer any) (ids []string) {
	fields, _ := answer.(map[string]any)
	if id, ok := fields["messageId"].(string); ok {
		return []string{id}
	}
	results, _ := fields["results"].([]any)
	for _, result := range results {
		fields, _ := result.(map[string]any)
		id, _ := fields["messageId"].(string)
		ids = append(ids, id)
	}
	return ids
}

// contents returns the messages in a request: one, or several in parts.
func (r *replay) contents(t *testing.T, request record.Request) (list []content) {
	t.Helper()
	body := r.names.toNow().Replace(string(request.Body))
	kind, params, _ := mime.ParseMediaType(request.Header["Content-Type"])
	if kind != "multipart/mixed" {
		return []content{{request.Header["Content-Type"], body}}
	}
	for _, p := range partsOf(t, body, params["boundary"]) {
		list = append(list, p.content)
	}
	return list
}

type sentPart struct {
	content

	header http.Header
}

func partsOf(t *testing.T, body, boundary string) (list []sentPart) {
	t.Helper()
	r := multipart.NewReader(strings.NewReader(body), boundary)
	for {
		p, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		data := check.Value(io.ReadAll(p))(t)
		list = append(list, sentPart{content{p.Header.Get("Content-Type"), string(data)}, http.Header(p.Header)})
	}
}

// translate returns a value with the IDs in its texts replaced.
func translate(v any, names *strings.Replacer) any {
	switch v := v.(type) {
	case string:
		return names.Replace(v)
	case map[string]any:
		translated := make(map[string]any, len(v))
		for key, of := range v {
			translated[key] = translate(of, names)
		}
		return translated
	case []any:
		translated := make([]any, len(v))
		for i, of := range v {
			translated[i] = translate(of, names)
		}
		return translated
	default:
		return v
	}
}

// deliver receives the message of a recorded delivery when it is due.
func (r *replay) deliver(t *testing.T, d record.Delivery) (wrong []string) {
	t.Helper()
	id, sent := r.names.now[d.Message]
	if !sent {
		return []string{"nobody sent it"}
	}
	_, err := r.pool.Exec(t.Context(),
		`UPDATE messages SET due_at = now(), lease = '', ticket = greatest(ticket, 1) WHERE id = $1`, id)
	if err != nil {
		t.Fatal(err)
	}
	got := client{server: r.server}.send(t, http.MethodPost, queuePath+d.Topic+"/consumer/default/id/"+id, nil)
	kind, params, _ := mime.ParseMediaType(got.header.Get("Content-Type"))
	if got.status != http.StatusOK || kind != "multipart/mixed" {
		return []string{fmt.Sprintf("fetch it: got %d %s %s", got.status, kind, bytes.TrimSpace(got.body))}
	}
	list := partsOf(t, string(got.body), params["boundary"])
	if len(list) != 1 {
		return []string{fmt.Sprintf("fetch it: got %d parts", len(list))}
	}
	check := func(what, got, want string) {
		if got != want {
			wrong = append(wrong, fmt.Sprintf("%s: got %q, want %q", what, got, want))
		}
	}
	check("ID", list[0].header.Get("Vqs-Message-Id"), id)
	check("delivery count", list[0].header.Get("Vqs-Delivery-Count"), strconv.Itoa(d.Count))
	check("content type", list[0].kind, r.sent[d.Message].kind)
	check("body", list[0].body, r.sent[d.Message].body)
	r.names.add(list[0].header.Get("Vqs-Receipt-Handle"), d.Receipt)
	return wrong
}
