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

	"github.com/caarlos0/env/v11"

	"github.com/stepwell-dev/stepwell/eventlog/archive"
	"github.com/stepwell-dev/stepwell/handlers"
	"github.com/stepwell-dev/stepwell/handlers/telemetry"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

// config is what the environment says. docs/configuration.md lists it for users.
type config struct {
	DatabaseURL string `env:"DATABASE_URL"`
	Schema      string `env:"STEPWELL_SCHEMA" envDefault:"stepwell"`
	Listen      string `env:"STEPWELL_LISTEN" envDefault:"127.0.0.1:8788"`
	APIKey      string `env:"STEPWELL_API_KEY"`
	// Open lets everyone in who can connect.
	Open bool `env:"STEPWELL_OPEN"`
	// Deployments are registered at start: id=url,id=url.
	Deployments map[string]string `env:"STEPWELL_DEPLOYMENTS" envKeyValSeparator:"="`
	// AllowAddresses are those besides public ones where deployments may be; "dev" has a default of its own.
	AllowAddresses string `env:"STEPWELL_ALLOW_ADDRESSES"`
	// Deliveries is how many calls of functions may be under way at once.
	Deliveries int `env:"STEPWELL_DELIVERIES" envDefault:"4000"`
	// MaxDeliveries is after how many deliveries a message is parked, FailureWindow how long ago the first of
	// them must have failed.
	MaxDeliveries int           `env:"STEPWELL_MAX_DELIVERIES" envDefault:"64"`
	FailureWindow time.Duration `env:"STEPWELL_FAILURE_WINDOW" envDefault:"1h"`
	// BodyMemory is how many MiB the bodies of messages under way may have together.
	BodyMemory int64 `env:"STEPWELL_BODY_MEMORY" envDefault:"256"`
	// Requests is how many requests are answered at once, RequestMemory how many MiB their bodies may have.
	Requests      int64         `env:"STEPWELL_REQUESTS" envDefault:"1000"`
	RequestMemory int64         `env:"STEPWELL_REQUEST_MEMORY" envDefault:"512"`
	Grace         time.Duration `env:"STEPWELL_SHUTDOWN_GRACE" envDefault:"15s"`
	// DrainBudget is how long a drain takes on deliveries in function mode, PublicURL where the server's own requests
	// for drains go to.
	DrainBudget time.Duration `env:"STEPWELL_DRAIN_BUDGET" envDefault:"25s"`
	PublicURL   string        `env:"STEPWELL_PUBLIC_URL"`
	DataDir     string        `env:"STEPWELL_DATA_DIR"`
	// Retention is how long runs are kept after their end; 0 is for ever.
	Retention time.Duration `env:"STEPWELL_RETENTION"`
	// Archive is the folder or bucket that runs are exported to before they leave; empty for nowhere.
	Archive string `env:"STEPWELL_ARCHIVE"`
	AWS     aws
	// OpenTelemetry says whether there are traces, and where they go.
	OpenTelemetry otelConfig
	LogFormat     string     `env:"STEPWELL_LOG" envDefault:"text"`
	LogLevel      slog.Level `env:"STEPWELL_LOG_LEVEL" envDefault:"info"`
}

// aws has the names that Amazon's own clients read.
type aws struct {
	EndpointS3      string `env:"AWS_ENDPOINT_URL_S3"`
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

func readConfig(environ []string) (config, error) {
	c, err := env.ParseAsWithOptions[config](env.Options{Environment: env.ToMap(environ)})
	if err != nil {
		return config{}, fmt.Errorf("read environment: %w", err)
	}
	if err := c.checkKey(); err != nil {
		return config{}, err
	}
	if c.Deliveries < 1 || c.Deliveries > 10_000 {
		return config{}, fmt.Errorf("STEPWELL_DELIVERIES is %d; want 1 to 10000", c.Deliveries)
	}
	if c.MaxDeliveries < 1 {
		return config{}, fmt.Errorf("STEPWELL_MAX_DELIVERIES is %d; want at least 1", c.MaxDeliveries)
	}
	if c.BodyMemory < 1 || c.BodyMemory > 1<<20 {
		return config{}, fmt.Errorf("STEPWELL_BODY_MEMORY is %d MiB; want 1 to %d", c.BodyMemory, 1<<20)
	}
	if c.Requests < 1 {
		return config{}, fmt.Errorf("STEPWELL_REQUESTS is %d; want at least 1", c.Requests)
	}
	if c.RequestMemory < 1 || c.RequestMemory > 1<<20 {
		return config{}, fmt.Errorf("STEPWELL_REQUEST_MEMORY is %d MiB; want 1 to %d", c.RequestMemory, 1<<20)
	}
	if err := c.checkTimes(); err != nil {
		return config{}, err
	}
	if _, err := c.allowed(); err != nil {
		return config{}, err
	}
	return c, nil
}

// checkKey checks who is let in. Its errors do not repeat the key.
func (c config) checkKey() error {
	if c.Open && c.APIKey != "" {
		return errors.New("STEPWELL_OPEN and STEPWELL_API_KEY are both set: decide for one")
	}
	if strings.TrimSpace(c.APIKey) != c.APIKey || strings.ContainsFunc(c.APIKey, unicode.IsControl) {
		return errors.New("STEPWELL_API_KEY begins or ends with blanks, or has a line end in it," +
			" and no request can carry it: was it read from a file?")
	}
	return nil
}

func (c config) checkTimes() error {
	for name, d := range map[string]time.Duration{
		"STEPWELL_FAILURE_WINDOW": c.FailureWindow, "STEPWELL_SHUTDOWN_GRACE": c.Grace,
	} {
		if d < 0 {
			return fmt.Errorf("%s is %s; want 0s or more", name, d)
		}
	}
	// Drains that end before they have delivered anything would ask for others without end.
	if c.DrainBudget < time.Second || c.DrainBudget > handlers.LongestDrain {
		return fmt.Errorf("STEPWELL_DRAIN_BUDGET is %s; want 1s to %s", c.DrainBudget, handlers.LongestDrain)
	}
	if c.Retention < 0 {
		return fmt.Errorf("STEPWELL_RETENTION is %s; want a time such as 720h, or nothing to keep runs for ever", c.Retention)
	}
	return nil
}

// allowed are the addresses besides public ones where deployments may be.
func (c config) allowed() (egress.Allowed, error) {
	allowed, err := egress.Parse(c.AllowAddresses)
	if err != nil {
		return egress.Allowed{}, fmt.Errorf("%s: %w", egress.Variable, err)
	}
	return allowed, nil
}

// newLogger logs to w as the configuration says.
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
