package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// This file decodes the wire format, based only on the protocol.

// event is an event on the wire.
type event struct {
	ID            string         `cbor:"eventId"`
	RunID         string         `cbor:"runId"`
	Type          string         `cbor:"eventType"`
	CorrelationID string         `cbor:"correlationId"`
	CreatedAt     time.Time      `cbor:"createdAt"`
	Data          map[string]any `cbor:"eventData"`
	Payload       []byte         `cbor:"-"`
}

// runEntity is a run on the wire.
type runEntity struct {
	ID     string `cbor:"runId"`
	Status string `cbor:"status"`
	Output []byte `cbor:"output"`
}

// page is one page of a list.
type page[T any] struct {
	Data    []T     `cbor:"data"`
	Cursor  *string `cbor:"cursor"`
	HasMore bool    `cbor:"hasMore"`
}

// wireCBOR decodes maps with text keys, the only maps in the protocol.
var wireCBOR = func() cbor.DecMode {
	mode, err := cbor.DecOptions{DefaultMapType: reflect.TypeFor[map[string]any]()}.DecMode()
	if err != nil {
		panic(err)
	}
	return mode
}()

// get requests a path and decodes the CBOR answer.
func get[T any](t *testing.T, s *server, path string) (v T) {
	t.Helper()
	r := request(t, http.MethodGet, s.url()+"/sdk"+path, nil).Want(t, http.StatusOK)
	if err := wireCBOR.Unmarshal(r.Body, &v); err != nil {
		t.Fatalf("%s: %v", r.What, err)
	}
	return v
}

func (s *server) run(t *testing.T, runID string) runEntity {
	t.Helper()
	return get[runEntity](t, s, "/v2/runs/"+runID)
}

// pageSize is small, so that many logs need several pages.
const pageSize = 20

// events reads the log of a run page by page.
func (s *server) events(t *testing.T, runID string) []event {
	t.Helper()
	var all []event
	cursor := ""
	for {
		url := fmt.Sprintf("%s/sdk/v4/runs/%s/events?limit=%d&cursor=%s", s.url(), runID, pageSize, cursor)
		r := request(t, http.MethodGet, url, nil).Want(t, http.StatusOK)
		if got := r.Header.Get("Content-Type"); got != "application/vnd.workflow.v4-frames" {
			t.Fatalf("%s: content type %q", r.What, got)
		}
		events, end, err := readFrames(r.Body)
		if err != nil {
			t.Fatalf("%s: %v", r.What, err)
		}
		all = append(all, events...)
		if !end.HasMore {
			return all
		}
		if end.Next == "" || end.Next == cursor || len(events) == 0 {
			t.Fatalf("%s: hasMore without a usable cursor: %+v", r.What, end)
		}
		cursor = end.Next
	}
}

// sentinel is the last frame of a list.
type sentinel struct {
	End     int    `cbor:"_end"`
	Next    string `cbor:"next"`
	HasMore bool   `cbor:"hasMore"`
}

// readFrames decodes a list of events and its mandatory sentinel.
func readFrames(data []byte) ([]event, sentinel, error) {
	var events []event
	r := strings.NewReader(string(data))
	for {
		meta, err := readBlock(r)
		if err != nil {
			return nil, sentinel{}, fmt.Errorf("metadata of frame %d: %w", len(events), err)
		}
		body, err := readBlock(r)
		if err != nil {
			return nil, sentinel{}, fmt.Errorf("body of frame %d: %w", len(events), err)
		}
		var end sentinel
		if err := wireCBOR.Unmarshal(meta, &end); err == nil && end.End == 1 {
			if r.Len() > 0 || len(body) > 0 {
				return nil, end, fmt.Errorf("%d bytes after the sentinel", r.Len()+len(body))
			}
			return events, end, nil
		}
		e := event{Payload: body}
		if err := wireCBOR.Unmarshal(meta, &e); err != nil {
			return nil, sentinel{}, fmt.Errorf("frame %d: %w", len(events), err)
		}
		events = append(events, e)
	}
}

// readBlock reads a length-prefixed block.
func readBlock(r io.Reader) ([]byte, error) {
	var size uint32
	if err := binary.Read(r, binary.BigEndian, &size); err != nil {
		return nil, err
	}
	block := make([]byte, size)
	_, err := io.ReadFull(r, block)
	return block, err
}
