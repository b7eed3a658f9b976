package server

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

// Config has the settings of a server; [Defaults] has those that are not set. The tags name the variables of the
// command's environment, which docs/configuration.md documents.
type Config struct {
	DatabaseURL string `env:"DATABASE_URL"`
	// DirectDatabaseURL is the address of Postgres itself when DatabaseURL leads to a pooler in transaction mode.
	DirectDatabaseURL string `env:"STEPWELL_DIRECT_DATABASE_URL"`
	// ReadDatabaseURL is the address of a replica for reads that may be a little late; empty for none.
	ReadDatabaseURL string `env:"STEPWELL_READ_DATABASE_URL"`
	Schema          string `env:"STEPWELL_SCHEMA"`
	Listen          string `env:"STEPWELL_LISTEN"`
	// TLSCert and TLSKey are PEM files with the server's certificate chain and its private key; none for plain HTTP.
	TLSCert string `env:"STEPWELL_TLS_CERT"`
	TLSKey  string `env:"STEPWELL_TLS_KEY"`
	APIKey  string `env:"STEPWELL_API_KEY"`
	// Open disables authentication.
	Open bool `env:"STEPWELL_OPEN"`
	// TrustedProxies are the networks of proxies whose X-Forwarded-For names the client.
	TrustedProxies []netip.Prefix `env:"STEPWELL_TRUSTED_PROXIES"`
	// Deployments are registered at start: id=url,id=url.
	Deployments map[string]string `env:"STEPWELL_DEPLOYMENTS" envKeyValSeparator:"="`
	// AllowAddresses lists the non-public addresses that deployments may have. "dev" has its own default.
	AllowAddresses string `env:"STEPWELL_ALLOW_ADDRESSES"`
	// Deliveries limits concurrent calls of functions. One project gets four fifths of them at most.
	Deliveries int `env:"STEPWELL_DELIVERIES"`
	// A message is parked after MaxDeliveries deliveries, if it has been failing for at least FailureWindow.
	MaxDeliveries int           `env:"STEPWELL_MAX_DELIVERIES"`
	FailureWindow time.Duration `env:"STEPWELL_FAILURE_WINDOW"`
	// BodyMemory limits the total size of the messages being delivered, in MiB.
	BodyMemory int64 `env:"STEPWELL_BODY_MEMORY"`
	// Requests limits concurrent requests, RequestMemory the total size of their bodies in MiB.
	Requests      int64 `env:"STEPWELL_REQUESTS"`
	RequestMemory int64 `env:"STEPWELL_REQUEST_MEMORY"`
	// Readers limits the requests of a project that follow something or wait for a run.
	Readers int `env:"STEPWELL_READERS"`
	// Grace is how long deliveries may take to finish at shutdown.
	Grace time.Duration `env:"STEPWELL_SHUTDOWN_GRACE"`
	// DrainBudget is how long a drain in function mode starts deliveries. PublicURL is the server's address on the
	// internet: functions learn it for their webhooks, and in function mode the server requests its drains there.
	DrainBudget time.Duration `env:"STEPWELL_DRAIN_BUDGET"`
	PublicURL   string        `env:"STEPWELL_PUBLIC_URL"`
	// Cell names the servers of this database among others behind one proxy.
	Cell entities.Cell `env:"STEPWELL_CELL"`
	// EncryptionKeys are the master keys of payloads, and EncryptionKeysFile is a file with them, which comes first.
	EncryptionKeys     string `env:"STEPWELL_ENCRYPTION_KEYS"`
	EncryptionKeysFile string `env:"STEPWELL_ENCRYPTION_KEYS_FILE"`
	// KMS is the service of those master keys that are in one; nil if there is none.
	KMS encryption.Service
	// SpecFence serves runs of the Workflow SDK's spec version 9.
	SpecFence bool `env:"STEPWELL_SDK_SPEC_9"`
	// PayloadsOver is the size in bytes above which payloads are outside of the database, if there is a place for them.
	PayloadsOver int `env:"STEPWELL_PAYLOADS_OVER"`
	// Retention is how long ended runs are kept; 0 means forever.
	Retention time.Duration `env:"STEPWELL_RETENTION"`
	// ArchiveListed is how long archived runs stay listed; 0 means forever.
	ArchiveListed time.Duration `env:"STEPWELL_ARCHIVE_LISTED"`
}

// Defaults returns the settings of an empty environment.
func Defaults() Config {
	return Config{
		Schema: migrations.DefaultSchema, Listen: "127.0.0.1:8788",
		Deliveries: 5000, MaxDeliveries: 64, FailureWindow: time.Hour, BodyMemory: 256,
		Requests: 1000, RequestMemory: 512, Readers: 2000,
		PayloadsOver: 256 << 10, ArchiveListed: 365 * 24 * time.Hour, Grace: 15 * time.Second, DrainBudget: 25 * time.Second,
	}
}

// Allowed returns the non-public addresses that deployments may have.
func (c Config) Allowed() (egress.Allowed, error) {
	allowed, err := egress.Parse(c.AllowAddresses)
	if err != nil {
		return egress.Allowed{}, fmt.Errorf("%s: %w", egress.Variable, err)
	}
	return allowed, nil
}

// MasterKeys returns the master keys of payloads; none if nothing is encrypted. Its errors do not contain keys.
func (c Config) MasterKeys() (encryption.MasterKeys, error) {
	var text []byte
	if c.EncryptionKeysFile != "" {
		var err error
		if text, err = os.ReadFile(c.EncryptionKeysFile); err != nil {
			return nil, fmt.Errorf("STEPWELL_ENCRYPTION_KEYS_FILE: %w", err)
		}
	}
	keys, err := encryption.ParseMasterKeys(string(text)+"\n"+c.EncryptionKeys, c.KMS)
	if err != nil {
		return nil, fmt.Errorf("STEPWELL_ENCRYPTION_KEYS: %w", err)
	}
	return keys, nil
}

// Scheme is the scheme of the server's URLs.
func (c Config) Scheme() string {
	if c.TLSCert != "" {
		return "https"
	}
	return "http"
}
