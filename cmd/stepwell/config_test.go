package main

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/admin/encryption/awskms"
	"github.com/stepwell-dev/stepwell/eventlog/archive"
	"github.com/stepwell-dev/stepwell/server"
)

// defaults returns the configuration of an empty environment.
func defaults() config {
	provider := providerConfig{GroupsClaim: "groups", Scopes: []string{"profile", "email", "groups"}}
	c := server.Defaults()
	c.KMS = awskms.Config{}
	return config{Config: c, UI: true, Provider: provider, LogFormat: "text"}
}

func TestReadConfig(t *testing.T) {
	t.Parallel()
	got, err := readConfig(nil)
	if diff := cmp.Diff(defaults(), got); err != nil || diff != "" {
		t.Errorf("defaults: %v (-want +got):\n%s", err, diff)
	}
	got, err = readConfig([]string{
		"DATABASE_URL=postgres://u:p@h/d?sslmode=disable", "STEPWELL_DIRECT_DATABASE_URL=postgres://h/d", "STEPWELL_READ_DATABASE_URL=postgres://r/d", "STEPWELL_SCHEMA=other", "STEPWELL_LISTEN=:0",
		"STEPWELL_API_KEY=0123456789abcd=f", "STEPWELL_TLS_CERT=/tls.crt", "STEPWELL_TLS_KEY=/tls.key",
		"STEPWELL_TRUSTED_PROXIES=10.0.0.0/8,fd00::/8",
		"STEPWELL_DEPLOYMENTS=shop=http://127.0.0.1:3000,blog=https://blog.test/app",
		"STEPWELL_ALLOW_ADDRESSES=loopback,10.0.0.0/8", "STEPWELL_DELIVERIES=1", "STEPWELL_MAX_DELIVERIES=2", "STEPWELL_SHUTDOWN_GRACE=1m30s",
		"STEPWELL_FAILURE_WINDOW=0s", "STEPWELL_BODY_MEMORY=1", "STEPWELL_REQUESTS=3", "STEPWELL_REQUEST_MEMORY=4", "STEPWELL_READERS=5", "STEPWELL_SDK_SPEC_9=true", "STEPWELL_RETENTION=720h", "STEPWELL_ARCHIVE=/archive", "STEPWELL_ARCHIVE_LISTED=1h", "STEPWELL_PAYLOADS=s3://b/p", "STEPWELL_PAYLOADS_OVER=4096",
		"AWS_ENDPOINT_URL=http://all.test", "AWS_ENDPOINT_URL_S3=http://s3.test", "AWS_ENDPOINT_URL_KMS=http://kms.test", "AWS_REGION=eu-1", "AWS_DEFAULT_REGION=eu-2",
		"AWS_ACCESS_KEY_ID=id", "AWS_SECRET_ACCESS_KEY=se=cret", "AWS_SESSION_TOKEN=token",
		"STEPWELL_DRAIN_BUDGET=50s", "STEPWELL_PUBLIC_URL=https://s.test", "STEPWELL_CELL=eu1", "STEPWELL_UI=false",
		"STEPWELL_OIDC_ISSUER=https://id.test", "STEPWELL_OIDC_CLIENT_ID=stepwell", "STEPWELL_OIDC_CLIENT_SECRET=secret",
		"STEPWELL_OIDC_ACCESS=default:admin=sre", "STEPWELL_OIDC_GROUPS_CLAIM=roles", "STEPWELL_OIDC_SCOPES=email",
		"STEPWELL_DATA_DIR=/data", "STEPWELL_LOG=JSON", "STEPWELL_LOG_LEVEL=debug", "UNRELATED=1",
	})
	want := config{Config: server.Config{
		DatabaseURL: "postgres://u:p@h/d?sslmode=disable", DirectDatabaseURL: "postgres://h/d", ReadDatabaseURL: "postgres://r/d", Schema: "other", Listen: ":0",
		TLSCert: "/tls.crt", TLSKey: "/tls.key",
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
		APIKey:         "0123456789abcd=f",
		Deployments:    map[string]string{"shop": "http://127.0.0.1:3000", "blog": "https://blog.test/app"},
		AllowAddresses: "loopback,10.0.0.0/8", Deliveries: 1, MaxDeliveries: 2, BodyMemory: 1, Requests: 3, RequestMemory: 4, Readers: 5, SpecFence: true, Grace: 90 * time.Second,
		Retention: 720 * time.Hour, ArchiveListed: time.Hour, PayloadsOver: 4096, DrainBudget: 50 * time.Second, PublicURL: "https://s.test", Cell: "eu1",
		KMS: awskms.Config{
			Endpoint: "http://kms.test", Region: "eu-1", AccessKeyID: "id", SecretAccessKey: "se=cret", SessionToken: "token",
		},
	}, Provider: providerConfig{
		Issuer: "https://id.test", ClientID: "stepwell", ClientSecret: "secret", Access: "default:admin=sre", GroupsClaim: "roles",
		Scopes: []string{"email"},
	}, DataDir: "/data", Archive: "/archive", Payloads: "s3://b/p", LogFormat: "JSON", LogLevel: slog.LevelDebug,
		AWS: aws{
			Endpoint: "http://all.test", EndpointS3: "http://s3.test", EndpointKMS: "http://kms.test", Region: "eu-1", DefaultRegion: "eu-2",
			AccessKeyID: "id", SecretAccessKey: "se=cret", SessionToken: "token",
		},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); err != nil || diff != "" {
		t.Errorf("everything set: %v (-want +got):\n%s", err, diff)
	}
}

func TestS3SettingsFromEnvironment(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		environ []string
		want    archive.S3
	}{
		{nil, archive.S3{}},
		{[]string{"AWS_ENDPOINT_URL=a", "AWS_DEFAULT_REGION=r"}, archive.S3{Endpoint: "a", Region: "r"}},
		{
			[]string{
				"AWS_ENDPOINT_URL=a", "AWS_ENDPOINT_URL_S3=b", "AWS_DEFAULT_REGION=r", "AWS_REGION=s",
				"AWS_ACCESS_KEY_ID=i", "AWS_SECRET_ACCESS_KEY=k", "AWS_SESSION_TOKEN=t",
			},
			archive.S3{Endpoint: "b", Region: "s", AccessKeyID: "i", SecretAccessKey: "k", SessionToken: "t"},
		},
	} {
		c, err := readConfig(tt.environ)
		if diff := cmp.Diff(tt.want, c.AWS.s3()); err != nil || diff != "" {
			t.Errorf("%v: %v (-want +got):\n%s", tt.environ, err, diff)
		}
	}
}

func TestReadConfigRejectsInvalidValues(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ variable, want string }{
		{"STEPWELL_DELIVERIES=0", "STEPWELL_DELIVERIES is 0"},
		{"STEPWELL_DELIVERIES=10001", "STEPWELL_DELIVERIES is 10001"},
		{"STEPWELL_DELIVERIES=many", "Deliveries"},
		{"STEPWELL_MAX_DELIVERIES=0", "STEPWELL_MAX_DELIVERIES is 0"},
		{"STEPWELL_FAILURE_WINDOW=-1s", "STEPWELL_FAILURE_WINDOW is -1s"},
		{"STEPWELL_REQUESTS=0", "STEPWELL_REQUESTS is 0"}, {"STEPWELL_READERS=0", "STEPWELL_READERS is 0"},
		{"STEPWELL_REQUEST_MEMORY=0", "STEPWELL_REQUEST_MEMORY is 0 MiB"},
		{"STEPWELL_BODY_MEMORY=0", "STEPWELL_BODY_MEMORY is 0 MiB"},
		{"STEPWELL_BODY_MEMORY=1048577", "STEPWELL_BODY_MEMORY is 1048577 MiB"},
		{"STEPWELL_SHUTDOWN_GRACE=20", "Grace"},
		{"STEPWELL_SHUTDOWN_GRACE=-1s", "STEPWELL_SHUTDOWN_GRACE is -1s"},
		{"STEPWELL_DRAIN_BUDGET=-1s", "STEPWELL_DRAIN_BUDGET is -1s"},
		{"STEPWELL_DRAIN_BUDGET=0s", "STEPWELL_DRAIN_BUDGET is 0s"},
		{"STEPWELL_DRAIN_BUDGET=999ms", "STEPWELL_DRAIN_BUDGET is 999ms"},
		{"STEPWELL_DRAIN_BUDGET=61m", "STEPWELL_DRAIN_BUDGET is 1h1m0s"},
		{"STEPWELL_RETENTION=-1h", "STEPWELL_RETENTION is -1h"},
		{"STEPWELL_RETENTION=forever", "Retention"},
		{"STEPWELL_ARCHIVE_LISTED=-1h", "STEPWELL_ARCHIVE_LISTED is -1h"},
		{"STEPWELL_PAYLOADS_OVER=4095", "STEPWELL_PAYLOADS_OVER is 4095"},
		{"STEPWELL_DEPLOYMENTS=shop", "Deployments"},
		{"STEPWELL_ALLOW_ADDRESSES=inside", `STEPWELL_ALLOW_ADDRESSES: "inside"`},
		{"STEPWELL_LOG_LEVEL=loud", "LogLevel"},
		{"STEPWELL_OPEN=perhaps", "Open"},
		{"STEPWELL_OPEN=true STEPWELL_API_KEY=k", "set only one"},
		{"STEPWELL_TLS_CERT=/tls.crt", "STEPWELL_TLS_CERT and STEPWELL_TLS_KEY belong together"},
		{"STEPWELL_TRUSTED_PROXIES=everyone", "TrustedProxies"},
		{"STEPWELL_TLS_KEY=/tls.key", "STEPWELL_TLS_CERT and STEPWELL_TLS_KEY belong together"},
		{"STEPWELL_CELL=EU-1", "STEPWELL_CELL: "},
		{"STEPWELL_LOG=xml", `STEPWELL_LOG is "xml"`},
	} {
		t.Run(tt.variable, func(t *testing.T) {
			t.Parallel()
			config, err := readConfig(strings.Fields(tt.variable))
			if err == nil {
				_, err = config.newLogger(&bytes.Buffer{})
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// TestUnusableAPIKeyIsRejected: no HTTP header can carry a key with a line break, as a key read from a file may have, and
// a short key can be guessed.
func TestUnusableAPIKeyIsRejected(t *testing.T) {
	t.Parallel()
	const secret = "0123456789-secret"
	for key, valid := range map[string]bool{
		"0123456789abcdef": true, "a long passphrase": true, "ключключключключ": true,
		"0123456789abcde": false, "k": false, "ключ": false,
		secret + "\n": false, " " + secret: false, secret + "\r": false, "sec\n" + secret: false, "\t" + secret: false, " ": false,
	} {
		_, err := readConfig([]string{"STEPWELL_API_KEY=" + key})
		if (err == nil) != valid {
			t.Errorf("%q: got %v", key, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "STEPWELL_API_KEY") || strings.Contains(err.Error(), "0123")) {
			t.Errorf("%q: got %v, want an error that names the variable without the key", key, err)
		}
	}
}

func TestLogger(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		"text": "level=WARN msg=logged\n", "json": `"level":"WARN","msg":"logged"}` + "\n",
	} {
		var out bytes.Buffer
		logger, err := config{LogFormat: format, LogLevel: slog.LevelWarn}.newLogger(&out)
		if err != nil {
			t.Fatal(err)
		}
		logger.Info("dropped")
		logger.Warn("logged")
		if got := out.String(); !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: got %q, want one line that ends in %q", format, got, want)
		}
	}
}
