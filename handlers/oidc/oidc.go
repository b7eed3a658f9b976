// Package oidc signs people in to the dashboard by the identity provider of their company, with OpenID Connect: the
// authorization code flow with PKCE (RFC 6749 and 7636, OpenID Connect Core 1.0 §3.1). What a person may do follows
// from the groups that the provider names.
package oidc

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/entities"
)

// requestTimeout bounds each request to the provider.
const requestTimeout = 10 * time.Second

// Config says who the provider is, and what the groups of a person allow.
type Config struct {
	// Issuer is the URL of the provider, below which it describes itself.
	Issuer string
	// ClientID and ClientSecret are those with which the server is registered at the provider.
	ClientID, ClientSecret string
	// GroupsClaim is the claim with the groups of a person: a list of texts, or one text.
	GroupsClaim string
	// Scopes are asked for besides openid.
	Scopes []string
	// Access is what groups allow; see [ParseAccess].
	Access Access
	Now    func() time.Time
}

// Provider is an identity provider. It is found when the first person signs in: the server starts without it.
type Provider struct {
	config Config
	client *http.Client
	host   string

	mu    sync.Mutex
	found *gooidc.Provider // nil until it has described itself
	// failure is why it last did not, and failedAt when.
	failure  error
	failedAt time.Time
}

// New returns the provider. It fails if the issuer is no URL.
func New(c Config) (*Provider, error) {
	u, err := url.Parse(c.Issuer)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("issuer %q: want a URL such as https://accounts.example.com", c.Issuer)
	}
	client := &http.Client{Timeout: requestTimeout, Transport: bounded{http.DefaultTransport}}
	return &Provider{config: c, client: client, host: u.Host}, nil
}

// Host is the host of the provider, by which people know it.
func (p *Provider) Host() string { return p.host }

// maxAnswer limits what the provider answers: the names and groups of a person, or its own keys.
const maxAnswer = 1 << 20

// bounded is a transport whose answers end after [maxAnswer].
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}

// failureTime is how long all sign-ins get the last failure to find the provider: those who wait do not ask one after
// the other.
const failureTime = time.Second

// discover returns what the provider says about itself. It asks until there is an answer.
func (p *Provider) discover(ctx context.Context) (*gooidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found != nil {
		return p.found, nil
	}
	if p.config.Now().Sub(p.failedAt) < failureTime {
		return nil, p.failure
	}
	// The keys of the provider are read later, when the request that found it has ended.
	found, err := gooidc.NewProvider(gooidc.ClientContext(context.WithoutCancel(ctx), p.client), p.config.Issuer)
	if err != nil {
		p.failure, p.failedAt = fmt.Errorf("find identity provider: %w", err), p.config.Now()
		return nil, p.failure
	}
	p.found = found
	return found, nil
}

func (p *Provider) oauth(found *gooidc.Provider, redirect string) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.config.ClientID, ClientSecret: p.config.ClientSecret, Endpoint: found.Endpoint(),
		RedirectURL: redirect, Scopes: append([]string{gooidc.ScopeOpenID}, p.config.Scopes...),
	}
}

// Begin returns the address at the provider where a person signs in, who then comes back to the address redirect.
func (p *Provider) Begin(ctx context.Context, redirect string, a access.Attempt) (string, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return "", err
	}
	challenge := oauth2.S256ChallengeOption(a.Verifier)
	return p.oauth(found, redirect).AuthCodeURL(a.State, gooidc.Nonce(a.Nonce), challenge), nil
}

// errNonce refuses an ID token that was made for another attempt.
var errNonce = errors.New("the ID token belongs to another sign-in")

// End returns who has signed in, by the code with which the provider sent the browser back.
func (p *Provider) End(ctx context.Context, redirect, code string, a access.Attempt) (access.Person, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return access.Person{}, err
	}
	ctx = gooidc.ClientContext(ctx, p.client)
	tokens, err := p.oauth(found, redirect).Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return access.Person{}, fmt.Errorf("exchange code: %w", err)
	}
	text, _ := tokens.Extra("id_token").(string)
	id, err := found.Verifier(&gooidc.Config{ClientID: p.config.ClientID, Now: p.config.Now}).Verify(ctx, text)
	if err != nil {
		return access.Person{}, fmt.Errorf("verify ID token: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(a.Nonce)) != 1 {
		return access.Person{}, errNonce
	}
	c, err := p.claimsOf(ctx, found, tokens, id)
	if err != nil {
		return access.Person{}, err
	}
	return p.person(id.Subject, c)
}

// claims are what the provider says about a person.
type claims map[string]json.RawMessage

// claimsOf returns the claims of the ID token, and what the user info has besides: many providers tell names and groups
// only there (OpenID Connect Core 1.0 §5.4).
func (p *Provider) claimsOf(
	ctx context.Context, found *gooidc.Provider, tokens *oauth2.Token, id *gooidc.IDToken,
) (all claims, err error) {
	if found.UserInfoEndpoint() != "" {
		info, err := found.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
		if err != nil {
			return nil, fmt.Errorf("read user info: %w", err)
		}
		if info.Subject != id.Subject { // §5.3.2
			return nil, errors.New("the user info is about another person than the ID token")
		}
		if err := info.Claims(&all); err != nil {
			return nil, fmt.Errorf("read user info: %w", err)
		}
	}
	if err := id.Claims(&all); err != nil { // adds to them
		return nil, fmt.Errorf("read ID token: %w", err)
	}
	return all, nil
}

// text returns the first of some claims that is a name; empty if none is.
func (c claims) text(names ...string) string {
	for _, name := range names {
		var s string
		if json.Unmarshal(c[name], &s) == nil && entities.ValidateName(name, s) == nil {
			return s
		}
	}
	return ""
}

// list returns a claim that is a list of texts, or a text.
func (c claims) list(name string) ([]string, error) {
	value, ok := c[name]
	if !ok {
		return nil, nil
	}
	var one string
	if json.Unmarshal(value, &one) == nil {
		return []string{one}, nil
	}
	var all []string
	if err := json.Unmarshal(value, &all); err != nil {
		return nil, fmt.Errorf("the claim %s is no list of texts", name)
	}
	return all, nil
}

// person returns the person with a subject, whose grants follow from the groups in the claims.
func (p *Provider) person(subject string, c claims) (access.Person, error) {
	groups, err := c.list(p.config.GroupsClaim)
	if err != nil {
		return access.Person{}, err
	}
	return access.Person{
		// A subject is unique at its issuer only.
		Subject: p.config.Issuer + " " + subject,
		Name:    cmp.Or(c.text("email", "preferred_username", "name", "sub"), "unnamed"),
		Grants:  p.config.Access.of(func(group string) bool { return slices.Contains(groups, group) }),
	}, nil
}
