// Command provider is the OpenID Connect provider of github.com/zitadel/oidc, a certified implementation, with users in
// memory: a real provider for tests, which build it. It is a separate module, so that its dependencies stay out of
// Stepwell's.
//
// It listens on a free port of 127.0.0.1 and writes its issuer as a line to standard output. A line answers each line of
// JSON on its standard input: {"redirect": "http://…"} registers a server to which it sends browsers back, and {"user":
// "anna", "groups": ["sre"]} makes a user with the password "verysecure", or changes the groups of one. It exits when
// its standard input is closed, and so when the process that started it ends.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	// The server under test is at 127.0.0.1, so for browsers the provider is another site.
	issuer := "http://" + strings.Replace(listener.Addr().String(), "127.0.0.1", "localhost", 1)
	people := &people{groups: map[string][]string{}}
	store := withGroups{storage.NewStorage(people), people}
	router := exampleop.SetupServer(issuer, store, slog.New(slog.DiscardHandler), false)
	go func() { log.Fatal(http.Serve(listener, router)) }()
	fmt.Println(issuer)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); fmt.Println("ok") {
		if err := people.put(lines.Bytes()); err != nil {
			log.Fatal(err)
		}
	}
}

// people are the users, by name, which is also their ID.
type people struct {
	mu     sync.Mutex
	groups map[string][]string
}

func (p *people) put(line []byte) error {
	var change struct {
		Redirect, User string
		Groups         []string
	}
	if err := json.Unmarshal(line, &change); err != nil {
		return err
	}
	if change.Redirect != "" {
		storage.RegisterClients(storage.WebClient("stepwell", "secret", change.Redirect))
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.groups[change.User] = change.Groups
	return nil
}

// of returns the groups of a user.
func (p *people) of(name string) ([]string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	groups, ok := p.groups[name]
	return groups, ok
}

func (p *people) GetUserByID(name string) *storage.User {
	if _, ok := p.of(name); !ok {
		return nil
	}
	return &storage.User{ID: name, Username: name, Password: "verysecure", Email: name + "@example.com", EmailVerified: true}
}

func (p *people) GetUserByUsername(name string) *storage.User { return p.GetUserByID(name) }

func (p *people) ExampleClientID() string { return "service" }

// withGroups is the storage with the groups of users in their user info. The provider puts no claims of scopes into ID
// tokens that it gives with an access token (OpenID Connect Core 1.0 §5.4).
type withGroups struct {
	*storage.Storage
	people *people
}

func (s withGroups) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, token, subject, origin string) error {
	err := s.Storage.SetUserinfoFromToken(ctx, info, token, subject, origin)
	s.add(info, subject)
	return err
}

func (s withGroups) SetUserinfoFromRequest(ctx context.Context, info *oidc.UserInfo, r op.IDTokenRequest, scopes []string) error {
	err := s.Storage.SetUserinfoFromRequest(ctx, info, r, scopes)
	// Users whose name begins so have their groups in the ID token.
	if strings.HasPrefix(r.GetSubject(), "token-") && slices.Contains(scopes, "openid") {
		s.add(info, r.GetSubject())
	}
	return err
}

func (s withGroups) add(info *oidc.UserInfo, subject string) {
	if groups, _ := s.people.of(subject); groups != nil {
		info.AppendClaims("groups", groups)
	}
}
