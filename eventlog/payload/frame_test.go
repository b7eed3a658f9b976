package payload

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// TestDecodeFrames of a real client, and chunks that are none.
func TestDecodeFrames(t *testing.T) {
	t.Parallel()
	frames := readSDK(t).Frames
	frame := func(content string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(content))), content...)
	}
	for _, tt := range []struct {
		chunk           []byte
		value, encoding string
		content         string
	}{
		{frames[0], `"line 1: \u003Cb>é\u003C/b>\n"`, EncodingDevalue, ""},
		{frames[1], `{"at":"2026-03-01T12:00:00.123Z","n":"7"}`, EncodingDevalue, ""},
		{frames[2], "", EncodingOpaque, "ab"}, // which is also CBOR
		{frames[3], "", EncodingOpaque, "\xff\x00"},
		{frame("encr\x01\x02"), "", EncodingEncrypted, "encr\x01\x02"},
		{frame("devl[[1]"), "", EncodingOpaque, "devl[[1]"},
		{frame("[1, 2]"), "", EncodingOpaque, "[1, 2]"}, // the bytes of an app, which are also JSON
		{frame(""), "", EncodingOpaque, ""},
	} {
		content, ok := Content(tt.chunk)
		d := DecodeContent(content, MaxDecoded)
		if !ok || string(d.Value) != tt.value || d.Encoding != tt.encoding || tt.value == "" && string(content) != tt.content {
			t.Errorf("%q: got %s %q %q", tt.chunk, d.Encoding, d.Value, content)
		}
	}
	for _, chunk := range [][]byte{
		nil, []byte("abc"), []byte("Once upon a time"), frames[0][:20], append(bytes.Clone(frames[0]), 'x'), frames[0][4:],
	} {
		if content, ok := Content(chunk); ok {
			t.Errorf("%q: got %q", chunk, content)
		}
	}
}
