package encryption

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// The vectors of https://c2sp.org/XAES-256-GCM.
func TestCipherIsXAES(t *testing.T) {
	t.Parallel()
	for _, v := range []struct{ key, text, data, sealed string }{
		{
			"0101010101010101010101010101010101010101010101010101010101010101", "XAES-256-GCM", "",
			"ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271",
		},
		{
			"0303030303030303030303030303030303030303030303030303030303030303", "XAES-256-GCM", "c2sp.org/XAES-256-GCM",
			"986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d",
		},
	} {
		key, _ := hex.DecodeString(v.key)
		nonce := []byte("ABCDEFGHIJKLMNOPQRSTUVWX")
		x, err := newXAES(key)
		if err != nil {
			t.Fatal(err)
		}
		sealed, err := x.seal(nil, nonce, []byte(v.text), []byte(v.data))
		if err != nil || hex.EncodeToString(sealed) != v.sealed {
			t.Errorf("sealed %x, %v, want %s", sealed, err, v.sealed)
		}
		if text, err := x.open(nonce, sealed, []byte(v.data)); err != nil || !bytes.Equal(text, []byte(v.text)) {
			t.Errorf("opened %q, %v", text, err)
		}
		if _, err := x.open(nonce, sealed, []byte("other")); err == nil {
			t.Error("other data were accepted")
		}
	}
}

// Neither the data key nor the secret of another run opens what the key of a run has sealed: who has destroyed the
// secret has destroyed the key.
func TestKeyOfARunNeedsItsSecret(t *testing.T) {
	t.Parallel()
	data, err := newDataCipher(bytes.Repeat([]byte{1}, keySize))
	if err != nil {
		t.Fatal(err)
	}
	of := func(secret byte) *xaes {
		x, err := data.ofRun(bytes.Repeat([]byte{secret}, keySize))
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	nonce := make([]byte, nonceSize)
	sealed, err := of(2).seal(nil, nonce, []byte("text"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := of(2).open(nonce, sealed, nil); err != nil || string(text) != "text" {
		t.Errorf("with the secret: %q, %v", text, err)
	}
	for name, x := range map[string]*xaes{"another secret": of(3), "the data key": data.xaes} {
		if text, err := x.open(nonce, sealed, nil); err == nil {
			t.Errorf("with %s: %q", name, text)
		}
	}
}
