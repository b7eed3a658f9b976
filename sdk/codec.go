package stepwell

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Codec transforms payloads before they leave the app, such as by encryption, and back. The server keeps what it gets
// as {"$codec": NAME, "data": BASE64}, and cannot look into it; docs/encryption.md has what it still sees. It is safe
// for concurrent use. App and clients need the same one; payloads that were written without a codec stay readable.
//
// [NewAESGCM] returns one that encrypts.
type Codec interface {
	// Encode returns JSON in another form, and the name with which Decode gets it, such as aes-256-gcm/k1. The same JSON
	// with the same id must become the same: the server tells repeated requests by that. The id says where the payload
	// belongs, such as to a step of a run.
	Encode(id string, plain []byte) (name string, data []byte, err error)
	// Decode returns the JSON.
	Decode(name string, data []byte) (plain []byte, err error)
}

// codeCodec is the code of an error of a codec, such as that a key is missing. The server calls a function again that
// answers with it, and counts no attempt.
const codeCodec = "codec_failed"

// envelope is the form of an encoded payload.
type envelope struct {
	Codec string `json:"$codec"`
	Data  []byte `json:"data"`
}

// encodedError is what an encoded error has in its details.
type encodedError struct {
	Error *struct {
		Message string          `json:"message"`
		Details json.RawMessage `json:"details,omitempty"`
	} `json:"$error"`
}

// errorIsEncoded is the message of an encoded error, as the server knows it.
const errorIsEncoded = "the error is encoded: only the app and its clients can read it"

// plainCodes are the codes of errors of calls that the SDK makes, and whose messages have no payloads. No code that an
// app is likely to use for its own errors is one of them.
var plainCodes = []string{codeCodec, "unknown_workflow", "unknown_step", "shutdown", "stale_invocation"}

// grown returns about how many bytes a payload has when it is encoded.
func grown(c Codec, size int) int {
	if c == nil {
		return size
	}
	return base64.StdEncoding.EncodedLen(size+256) + 256
}

// opened returns JSON with what is encoded in it decoded.
func opened(c Codec, text []byte) ([]byte, error) {
	if !bytes.Contains(text, []byte(`"$codec"`)) {
		return text, nil
	}
	var out []byte
	for {
		// In a string, no quote can follow the brace.
		i := bytes.IndexByte(text, '{')
		if i < 0 {
			return append(out, text...), nil
		}
		out, text = append(out, text[:i]...), text[i:]
		e, length := envelopeAt(text)
		if length == 0 {
			out, text = append(out, '{'), text[1:]
			continue
		}
		plain, err := e.decode(c)
		if err != nil {
			return nil, err
		}
		out, text = append(out, plain...), text[length:]
	}
}

// envelopeAt returns the encoded payload that a text begins with, and its length; 0 if it begins with something else.
func envelopeAt(text []byte) (e envelope, length int) {
	first := bytes.TrimLeft(text[1:], " \n\r\t")
	if !bytes.HasPrefix(first, []byte(`"$codec"`)) && !bytes.HasPrefix(first, []byte(`"data"`)) {
		return e, 0
	}
	end := bytes.IndexByte(text, '}') + 1
	strict := json.NewDecoder(bytes.NewReader(text[:end]))
	strict.DisallowUnknownFields()
	if strict.Decode(&e) != nil || e.Codec == "" || e.Data == nil {
		return e, 0
	}
	return e, end
}

func (e envelope) decode(c Codec) (plain []byte, err error) {
	if c == nil {
		return nil, Fail(codeCodec, fmt.Sprintf("a payload is encoded by %s: set Codec of AppConfig and ClientConfig",
			e.Codec))
	}
	plain, err = c.Decode(e.Codec, e.Data)
	if err == nil && !json.Valid(plain) {
		err = fmt.Errorf("it is no JSON")
	}
	if err != nil {
		return nil, Fail(codeCodec, fmt.Sprintf("decode what %s has encoded: %v", e.Codec, err))
	}
	return plain, nil
}

// revealed returns an error as it was before it was encoded.
func revealed(message string, details json.RawMessage) (string, json.RawMessage) {
	if !bytes.HasPrefix(details, []byte(`{"$error"`)) {
		return message, details
	}
	e, err := decode[encodedError](details)
	if err != nil || e.Error == nil {
		return message, details
	}
	return e.Error.Message, e.Error.Details
}

// UnmarshalJSON implements [json.Unmarshaler].
func (f *failure) UnmarshalJSON(data []byte) error {
	type plain failure
	if err := json.Unmarshal(data, (*plain)(f)); err != nil {
		return err
	}
	f.Message, f.Details = revealed(f.Message, f.Details)
	return nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (f *RunFailure) UnmarshalJSON(data []byte) error {
	var of failure
	err := json.Unmarshal(data, &of)
	f.Code, f.Message, f.Details = of.Code, of.Message, of.Details
	return err
}

// sealer encodes what is in JSON.
type sealer struct {
	codec Codec
	err   error
}

// object is JSON of which some fields are encoded.
type object = map[string]json.RawMessage

// change replaces JSON, if there is any, by what fn makes of it.
func change[T any](s *sealer, text json.RawMessage, fn func(T) any) json.RawMessage {
	if len(text) == 0 || string(text) == "null" || s.err != nil {
		return text
	}
	v, err := decode[T](text)
	if err != nil {
		s.err = fmt.Errorf("decode what is to be encoded: %w", err)
		return text
	}
	text, err = json.Marshal(fn(v))
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("encode it: %w", err)
	}
	return text
}

// value encodes a payload.
func (s *sealer) value(id string, text json.RawMessage) json.RawMessage {
	return change(s, text, func(plain json.RawMessage) any {
		name, data, err := s.codec.Encode(id, plain)
		if err != nil && s.err == nil {
			s.err = Fail(codeCodec, fmt.Sprintf("encode a payload: %v", err))
		}
		return envelope{name, data}
	})
}

// values encodes each value of an object.
func (s *sealer) values(id string, text json.RawMessage) json.RawMessage {
	return change(s, text, func(all object) any {
		for name, v := range all {
			all[name] = s.value(id+"/"+name, v)
		}
		return all
	})
}

// list changes each element.
func (s *sealer) list(
	id string, text json.RawMessage, fn func(string, json.RawMessage) json.RawMessage,
) json.RawMessage {
	return change(s, text, func(all []json.RawMessage) any {
		for i, v := range all {
			all[i] = fn(id+"/"+strconv.Itoa(i), v)
		}
		return all
	})
}

// failure encodes all of an error but its code.
func (s *sealer) failure(id string, text json.RawMessage) json.RawMessage {
	return change(s, text, func(f failure) any {
		inner, err := json.Marshal(map[string]any{"$error": failure{Message: f.Message, Details: f.Details}})
		if err != nil && s.err == nil {
			s.err = fmt.Errorf("encode an error: %w", err)
		}
		return failure{errorIsEncoded, f.Code, s.value(id, inner)}
	})
}

// command encodes the payloads of a command. What it responds to a request leaves the server for somebody else, and
// what is in the request of a step, the server sends itself.
func (s *sealer) command(run string, text json.RawMessage) json.RawMessage {
	return change(s, text, func(c object) any {
		if string(c["type"]) == `"respond"` {
			return c
		}
		id := run + "/" + strings.Join([]string{
			string(c["type"]), string(c["id"]), string(c["inbox"]), string(c["message"]),
		}, "/")
		for name, seal := range map[string]func(string, json.RawMessage) json.RawMessage{
			"input": s.value, "output": s.value, "data": s.value, "error": s.failure, "store": s.values, "values": s.values,
			"firstAttempt": func(id string, text json.RawMessage) json.RawMessage {
				return change(s, text, func(first object) any {
					first["error"] = s.failure(id, first["error"])
					return first
				})
			},
		} {
			if text := c[name]; text != nil {
				c[name] = seal(id+"/"+name, text)
			}
		}
		return c
	})
}

// commands encodes the payloads of an answer to a call.
func (s *sealer) commands(run string, text json.RawMessage) json.RawMessage {
	return change(s, text, func(answer object) any {
		answer["commands"] = s.list("", answer["commands"], func(_ string, c json.RawMessage) json.RawMessage {
			return s.command(run, c)
		})
		return answer
	})
}

// request encodes the payloads of a request to the API.
func (s *sealer) request(r apiRequest, body []byte) json.RawMessage {
	run, during, _ := strings.Cut(strings.TrimPrefix(r.path, "/v1/runs/"), "/")
	if during == "commands" {
		return s.commands(run, body)
	}
	return change(s, body, func(fields object) any {
		id := r.path + "/" + string(fields["idempotencyKey"]) + string(fields["id"])
		for _, name := range []string{"input", "data", "progress"} {
			if text := fields[name]; text != nil {
				fields[name] = s.value(id, text)
			}
		}
		s.message(fields)
		if chunks := fields["chunks"]; chunks != nil {
			fields["chunks"] = s.list(id+"/"+string(fields["stream"])+string(fields["from"]), chunks, s.value)
		}
		if messages := fields["send"]; messages != nil {
			fields["send"] = s.list(id, messages, func(_ string, text json.RawMessage) json.RawMessage {
				return change(s, text, s.message)
			})
		}
		return fields
	})
}

// message encodes the payload of a message, in the same way if it comes with the start of its run and after it.
func (s *sealer) message(m object) any {
	if payload := m["payload"]; payload != nil {
		m["payload"] = s.value("message/"+string(m["id"])+string(m["resumeId"]), payload)
	}
	return m
}

// sealRequest encodes the payloads of a request's body.
func (c *Client) sealRequest(r apiRequest, body []byte) ([]byte, error) {
	if c.codec == nil || strings.HasSuffix(r.path, "/call/answer") { // which is sealed
		return body, nil
	}
	s := &sealer{codec: c.codec}
	body = s.request(r, body)
	return body, s.err
}

// Encoded returns a value as JSON that the codec has encoded, for what does not go through a [Client], such as the
// input of a run that pgtx starts. The id is that under which it may be repeated, such as an idempotency key.
func Encoded(c Codec, id string, v any) (json.RawMessage, error) {
	data, err := encode(v)
	if err != nil {
		return nil, err
	}
	s := &sealer{codec: c}
	data = s.value(id, data)
	return data, s.err
}

// sealed returns an answer to a call with its payloads encoded.
func (a *App) sealed(ctx context.Context, c call, r reply) reply {
	if a.codec == nil {
		return r
	}
	s, id := &sealer{codec: a.codec}, c.Run.ID+"/answer/"+c.Step.ID
	switch {
	case r.Status/100 != 2:
		r.Body = change(s, r.Body, func(answer object) any {
			if f := decodeFailure(answer["error"]); !slices.Contains(plainCodes, f.Code) {
				answer["error"] = s.failure(id, answer["error"])
			}
			return answer
		})
	case c.Type == "workflow":
		r.Body = s.commands(c.Run.ID, r.Body)
	case c.Type == "step" && r.ContentType == stepOutput:
		r.Body = change(s, r.Body, func(answer object) any {
			answer["output"], answer["store"] = s.value(id, answer["output"]), s.values(id, answer["store"])
			return answer
		})
	case c.Type == "step":
		r.Body = s.value(id, r.Body)
	}
	if s.err != nil {
		a.logger.ErrorContext(ctx, "encode an answer", "run", c.Run.ID, "error", s.err)
		return errorReply(http.StatusServiceUnavailable, failure{Code: codeCodec, Message: "the payloads cannot be encoded"})
	}
	return r
}
