// Command server is local-kms, an implementation of the API of AWS KMS with keys of its own: a stand-in for the service
// in tests, which build it. Since local-kms lets everybody in, signatures are verified before it, by AWS's own signer. It
// is a separate module, so that its dependencies stay out of Stepwell's.
//
//	server FOLDER
//
// It keeps its keys in FOLDER, listens on a free port of 127.0.0.1 and writes its URL as a line to standard output. It takes the
// credentials of the package kmstest; requests that are signed by the name "nobody" are denied. It exits when its
// standard input is closed, and so when the process that started it ends.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go/aws/credentials"
	v4 "github.com/aws/aws-sdk-go/aws/signer/v4"
	"github.com/nsmithuk/local-kms/src"
	"github.com/nsmithuk/local-kms/src/config"
	"github.com/nsmithuk/local-kms/src/data"
)

const (
	region = "eu-west-2"
	nobody = "nobody"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: server FOLDER")
	}
	config.AWSAccountId, config.AWSRegion = "111122223333", region
	database := data.NewDatabase(os.Args[1])
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		log.Fatal(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			code, err := check(r)
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = fmt.Fprintf(w, `{"__type": %q, "message": %q}`, code, err)
				return
			}
			src.HandleRequest(w, r, database)
		})))
	}()
	fmt.Println("http://" + listener.Addr().String())
	_, _ = io.Copy(io.Discard, os.Stdin)
	database.Close()
}

// check signs the request again, and returns the code of AWS for what is wrong with it.
func check(r *http.Request) (code string, err error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return "InternalFailure", err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	name := os.Getenv("ACCESS_KEY_ID")
	if strings.Contains(r.Header.Get("Authorization"), "Credential="+nobody+"/") {
		name = nobody
	}
	again, err := http.NewRequest(r.Method, "http://"+r.Host+"/", nil)
	if err != nil {
		return "InternalFailure", err
	}
	for _, header := range []string{"Content-Type", "X-Amz-Content-Sha256", "X-Amz-Target"} {
		again.Header.Set(header, r.Header.Get(header))
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		return "IncompleteSignature", err
	}
	sum := sha256.Sum256(body)
	signer := v4.NewSigner(credentials.NewStaticCredentials(name, os.Getenv("SECRET_ACCESS_KEY"), ""))
	if _, err := signer.Sign(again, bytes.NewReader(body), "kms", region, at); err != nil {
		return "InternalFailure", err
	}
	if again.Header.Get("Authorization") != r.Header.Get("Authorization") ||
		hex.EncodeToString(sum[:]) != r.Header.Get("X-Amz-Content-Sha256") {
		return "InvalidSignatureException", errors.New("the signature is wrong")
	}
	if name == nobody {
		return "AccessDeniedException", errors.New("you may not")
	}
	return "", nil
}
