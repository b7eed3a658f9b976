package stepwell_test

import (
	"bytes"
	"fmt"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

func ExampleNewAESGCM() {
	old, key := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32) // 32 random bytes each, from a secret store
	codec, err := stepwell.NewAESGCM("2026-11", map[string][]byte{"2026-05": old, "2026-11": key})
	if err != nil {
		fmt.Println(err)
		return
	}
	app := stepwell.NewApp(stepwell.AppConfig{Name: "orders", Codec: codec})
	client, err := stepwell.NewClient(stepwell.ClientConfig{URL: "http://127.0.0.1:8788", Codec: codec})
	fmt.Println(app.Name(), client != nil, err)

	payload, err := stepwell.Encoded(codec, "order-7", Purchase{ID: "7", Amount: 2500})
	fmt.Println(string(payload[:31]), err)
	// Output:
	// orders true <nil>
	// {"$codec":"aes-256-gcm/2026-11" <nil>
}
