package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/handlers/oidc"
	"github.com/stepwell-dev/stepwell/handlers/ui"
)

// providerConfig holds the settings of the identity provider by which people sign in to the dashboard.
type providerConfig struct {
	Issuer       string   `env:"STEPWELL_OIDC_ISSUER"`
	ClientID     string   `env:"STEPWELL_OIDC_CLIENT_ID"`
	ClientSecret string   `env:"STEPWELL_OIDC_CLIENT_SECRET"`
	Access       string   `env:"STEPWELL_OIDC_ACCESS"`
	GroupsClaim  string   `env:"STEPWELL_OIDC_GROUPS_CLAIM" envDefault:"groups"`
	Scopes       []string `env:"STEPWELL_OIDC_SCOPES" envDefault:"profile,email,groups"`
}

// newProvider returns the identity provider; nil if none is configured.
func (c config) newProvider() (ui.Provider, error) {
	p := c.Provider
	if p.Issuer == "" {
		if p.ClientID+p.ClientSecret+p.Access != "" {
			return nil, errors.New("STEPWELL_OIDC_ISSUER is not set, but other settings of the identity provider are")
		}
		return nil, nil
	}
	switch {
	case c.PublicURL == "":
		return nil, errors.New("STEPWELL_OIDC_ISSUER requires STEPWELL_PUBLIC_URL:" +
			" the identity provider sends browsers back there")
	case c.Open:
		return nil, errors.New("STEPWELL_OPEN and STEPWELL_OIDC_ISSUER are both set: an open server lets everybody in")
	case p.ClientID == "":
		return nil, errors.New("STEPWELL_OIDC_ISSUER requires STEPWELL_OIDC_CLIENT_ID")
	}
	access, err := oidc.ParseAccess(p.Access)
	if err != nil {
		return nil, fmt.Errorf("STEPWELL_OIDC_ACCESS: %w", err)
	}
	found, err := oidc.New(oidc.Config{
		Issuer: p.Issuer, ClientID: p.ClientID, ClientSecret: p.ClientSecret,
		GroupsClaim: p.GroupsClaim, Scopes: p.Scopes, Access: access, Now: time.Now,
	})
	if err != nil {
		return nil, fmt.Errorf("STEPWELL_OIDC_ISSUER: %w", err)
	}
	return found, nil
}
