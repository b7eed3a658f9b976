package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caarlos0/env/v11"

	"github.com/stepwell-dev/stepwell/admin/encryption/awskms"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/archive"
	"github.com/stepwell-dev/stepwell/eventlog/blob"
	"github.com/stepwell-dev/stepwell/handlers"
	"github.com/stepwell-dev/stepwell/handlers/telemetry"
	"github.com/stepwell-dev/stepwell/server"
)

// config holds the settings from the environment. docs/configuration.md documents them.
type config struct {
	server.Config

	// UI serves the dashboard, in the roles that serve requests.
	UI       bool `env:"STEPWELL_UI" envDefault:"true"`
	Provider providerConfig
	// DataDir is the folder of the private Postgres of "dev".
	DataDir string `env:"STEPWELL_DATA_DIR"`
	// Archive is the folder or bucket that runs are exported to before they are deleted, or [archive.InDatabase]; ""
	// disables archiving.
	Archive string `env:"STEPWELL_ARCHIVE"`
	// Payloads is the folder or bucket of payloads that are larger than PayloadsOver; "" keeps all in the database.
	Payloads      string `env:"STEPWELL_PAYLOADS"`
	AWS           aws
	OpenTelemetry otelConfig
	LogFormat     string     `env:"STEPWELL_LOG" envDefault:"text"`
	LogLevel      slog.Level `env:"STEPWELL_LOG_LEVEL" envDefault:"info"`
}

// aws holds the standard variables of AWS clients.
type aws struct {
	EndpointS3      string `env:"AWS_ENDPOINT_URL_S3"`
	EndpointKMS     string `env:"AWS_ENDPOINT_URL_KMS"`
	Endpoint        string `env:"AWS_ENDPOINT_URL"`
	Region          string `env:"AWS_REGION"`
	DefaultRegion   string `env:"AWS_DEFAULT_REGION"`
	AccessKeyID     string `env:"AWS_ACCESS_KEY_ID"`
	SecretAccessKey string `env:"AWS_SECRET_ACCESS_KEY"`
	SessionToken    string `env:"AWS_SESSION_TOKEN"`
}

func (a aws) s3() archive.S3 {
	return archive.S3{
		Endpoint: cmp.Or(a.EndpointS3, a.Endpoint), Region: cmp.Or(a.Region, a.DefaultRegion),
		AccessKeyID: a.AccessKeyID, SecretAccessKey: a.SecretAccessKey, SessionToken: a.SessionToken,
	}
}

func (a aws) kms() awskms.Config {
	return awskms.Config{
		Endpoint: cmp.Or(a.EndpointKMS, a.Endpoint), Region: cmp.Or(a.Region, a.DefaultRegion),
		AccessKeyID: a.AccessKeyID, SecretAccessKey: a.SecretAccessKey, SessionToken: a.SessionToken,
	}
}

func readConfig(environ []string) (config, error) {
	if err := checkVariables(environ); err != nil {
		return config{}, err
	}
	c := config{Config: server.Defaults()}
	if err := env.ParseWithOptions(&c, env.Options{Environment: env.ToMap(environ)}); err != nil {
		return config{}, fmt.Errorf("read environment: %w", err)
	}
	c.KMS = c.AWS.kms()
	_, allowedErr := c.Allowed()
	_, providerErr := c.newProvider()
	_, keysErr := c.MasterKeys()
	return c, cmp.Or(
		c.checkKey(), c.checkCell(), c.checkTLS(), c.checkLimits(), c.checkPayloads(), c.checkTimes(), allowedErr,
		c.checkPublicURL(), providerErr, keysErr,
	)
}

// minKeyLength is the least number of characters of STEPWELL_API_KEY. It rejects words and examples; a key should be
// random and longer.
const minKeyLength = 16

// checkKey checks the authentication settings. Its errors do not contain the key.
func (c config) checkKey() error {
	if c.Open && c.APIKey != "" {
		return errors.New("STEPWELL_OPEN and STEPWELL_API_KEY are both set: set only one")
	}
	if strings.TrimSpace(c.APIKey) != c.APIKey || strings.ContainsFunc(c.APIKey, unicode.IsControl) {
		return errors.New("STEPWELL_API_KEY has surrounding whitespace or a line break," +
			" which no request header can carry: was it read from a file?")
	}
	if n := utf8.RuneCountInString(c.APIKey); n > 0 && n < minKeyLength {
		return fmt.Errorf("STEPWELL_API_KEY has %d characters, so it can be guessed; want at least %d:"+
			" make a key with openssl rand -hex 32", n, minKeyLength)
	}
	return nil
}

func (c config) checkCell() error {
	if err := entities.ValidateCell(c.Cell); err != nil {
		return fmt.Errorf("STEPWELL_CELL: %w", err)
	}
	return nil
}

// checkTLS requires both files or neither.
func (c config) checkTLS() error {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return errors.New("STEPWELL_TLS_CERT and STEPWELL_TLS_KEY belong together: set both, or neither for plain HTTP")
	}
	return nil
}

func (c config) checkLimits() error {
	for _, limit := range []struct {
		name       string
		value, max int64 // max is 0 for no maximum
		unit       string
	}{
		{"STEPWELL_DELIVERIES", int64(c.Deliveries), 10_000, ""},
		{"STEPWELL_MAX_DELIVERIES", int64(c.MaxDeliveries), 0, ""},
		{"STEPWELL_BODY_MEMORY", c.BodyMemory, 1 << 20, " MiB"},
		{"STEPWELL_REQUESTS", c.Requests, 0, ""},
		{"STEPWELL_REQUEST_MEMORY", c.RequestMemory, 1 << 20, " MiB"},
		{"STEPWELL_READERS", int64(c.Readers), 0, ""},
	} {
		switch {
		case limit.max == 0 && limit.value < 1:
			return fmt.Errorf("%s is %d%s; want at least 1", limit.name, limit.value, limit.unit)
		case limit.max != 0 && (limit.value < 1 || limit.value > limit.max):
			return fmt.Errorf("%s is %d%s; want 1 to %d", limit.name, limit.value, limit.unit, limit.max)
		}
	}
	return nil
}

// leastOver is the least STEPWELL_PAYLOADS_OVER: an object for less costs more than it saves.
const leastOver = 4 << 10

func (c config) checkPayloads() error {
	if c.PayloadsOver < leastOver {
		return fmt.Errorf("STEPWELL_PAYLOADS_OVER is %d; want at least %d bytes", c.PayloadsOver, leastOver)
	}
	return nil
}

// objects returns where large payloads are; nil if they are in the database.
func (c config) objects() (blob.Objects, error) {
	if c.Payloads == "" {
		return nil, nil //nolint:nilnil // there are none
	}
	objects, err := archive.OpenObjects(c.Payloads, c.AWS.s3())
	if err != nil {
		return nil, fmt.Errorf("STEPWELL_PAYLOADS: %w", err)
	}
	return objects, nil
}

func (c config) checkPublicURL() error {
	if c.PublicURL == "" {
		return nil
	}
	if _, err := handlers.ParseBaseURL(c.PublicURL); err != nil {
		return fmt.Errorf("STEPWELL_PUBLIC_URL: %w", err)
	}
	return nil
}

func (c config) checkTimes() error {
	for name, d := range map[string]time.Duration{
		"STEPWELL_FAILURE_WINDOW": c.FailureWindow, "STEPWELL_SHUTDOWN_GRACE": c.Grace,
		"STEPWELL_ARCHIVE_LISTED": c.ArchiveListed,
	} {
		if d < 0 {
			return fmt.Errorf("%s is %s; want 0s or more", name, d)
		}
	}
	// A drain that ends before it has delivered anything requests another one, which would loop forever.
	if c.DrainBudget < time.Second || c.DrainBudget > handlers.LongestDrain {
		return fmt.Errorf("STEPWELL_DRAIN_BUDGET is %s; want 1s to %s", c.DrainBudget, handlers.LongestDrain)
	}
	if c.Retention < 0 {
		return fmt.Errorf("STEPWELL_RETENTION is %s; want a duration such as 720h, or unset to keep runs forever",
			c.Retention)
	}
	return nil
}

// newLogger returns the configured logger, which writes to w.
func (c config) newLogger(w io.Writer) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	switch strings.ToLower(c.LogFormat) {
	case "text":
		return slog.New(telemetry.LogHandler(slog.NewTextHandler(w, options))), nil
	case "json":
		return slog.New(telemetry.LogHandler(slog.NewJSONHandler(w, options))), nil
	default:
		return nil, fmt.Errorf("STEPWELL_LOG is %q; want text or json", c.LogFormat)
	}
}
