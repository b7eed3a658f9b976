package webhook

import (
	"cmp"
	"crypto/sha256"
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

// Rates limits the requests per second that one server accepts; 0 means the default.
type Rates struct {
	// Token is the rate of each webhook, Project that of all webhooks of a project.
	Token, Project int
	// Address is the rate at which one public address may try tokens that no webhook has.
	Address int
}

const (
	defaultTokenRate   = 50
	defaultProjectRate = 1000
	defaultAddressRate = 100
	// burst is how many seconds' worth of requests may arrive at once.
	burst = 2
)

// limiter limits the rates of requests. Only requests to webhooks that exist count against a token and its project, and
// only others against an address: so strangers who try tokens cannot use up what the senders of webhooks need.
type limiter struct {
	rates Rates
	// tokens has the tokens of webhooks that have been found lately.
	tokens    incoming.Buckets[tokenHash]
	projects  incoming.Buckets[entities.Project]
	addresses incoming.Buckets[netip.Prefix]
}

// tokenHash is the SHA-256 of a project and a token.
type tokenHash [sha256.Size]byte

func newLimiter(r Rates) *limiter {
	r.Token, r.Project = cmp.Or(r.Token, defaultTokenRate), cmp.Or(r.Project, defaultProjectRate)
	r.Address = cmp.Or(r.Address, defaultAddressRate)
	return &limiter{
		rates: r, tokens: newBuckets[tokenHash](r.Token), projects: newBuckets[entities.Project](r.Project),
		addresses: newBuckets[netip.Prefix](r.Address),
	}
}

func newBuckets[K comparable](perSecond int) incoming.Buckets[K] {
	return incoming.NewBuckets[K](rate.Limit(perSecond), perSecond*burst)
}

// sender is the source of a request to a webhook.
type sender struct {
	project entities.Project
	token   tokenHash
	// from is the public address; the zero value if it is not known.
	from netip.Prefix
}

// newSender returns the sender of a request that came from an IP address.
func newSender(project entities.Project, token, address string) sender {
	return sender{project, sha256.Sum256([]byte(string(project) + "/" + token)), publicAddress(address)}
}

// before fails with a *[incoming.TooManyError] if the request is not to be looked up. It reports whether the webhook
// was found lately.
func (l *limiter) before(s sender, now time.Time) (known bool, err error) {
	if b, ok := l.tokens.Get(s.token); ok {
		return true, spend(b, now)
	}
	if s.from.IsValid() {
		if b, ok := l.addresses.Get(s.from); ok && b.TokensAt(now) < 1 {
			return false, tooMany(time.Second / time.Duration(l.rates.Address))
		}
	}
	return false, nil
}

// missed counts a request whose token no webhook has.
func (l *limiter) missed(s sender, now time.Time) {
	l.tokens.Remove(s.token)
	if s.from.IsValid() {
		l.addresses.Of(s.from).AllowN(now, 1)
	}
}

// found counts a request to a webhook. It fails with a *[incoming.TooManyError].
func (l *limiter) found(s sender, known bool, now time.Time) error {
	if !known {
		if err := spend(l.tokens.Of(s.token), now); err != nil {
			return err
		}
	}
	return spend(l.projects.Of(s.project), now)
}

// spend takes one request from a bucket.
func spend(b *rate.Limiter, now time.Time) error {
	reservation := b.ReserveN(now, 1)
	if wait := reservation.DelayFrom(now); wait > 0 {
		reservation.CancelAt(now)
		return tooMany(wait)
	}
	return nil
}

func tooMany(retryAfter time.Duration) error {
	return &incoming.TooManyError{What: "requests", RetryAfter: retryAfter}
}

// publicAddress returns an IP address, or for IPv6 its network, which one sender has for itself. It returns the zero
// value for addresses that are not public: behind them are proxies with many senders.
func publicAddress(address string) netip.Prefix {
	network := incoming.Network(address)
	if a := network.Addr(); !a.IsGlobalUnicast() || a.IsPrivate() || sharedAddresses.Contains(a) {
		return netip.Prefix{}
	}
	return network
}

// sharedAddresses are for networks behind a carrier's or cloud's address translation (RFC 6598).
var sharedAddresses = netip.MustParsePrefix("100.64.0.0/10")

const (
	// waitLimit limits the requests that wait for the responses of workflows and apps.
	waitLimit = 1000
	// A project that is alone gets three quarters of them, and a webhook that is alone half.
	projectWaits = 3
	tokenWaits   = 1
)

// waits divides the slots of requests that wait between projects, and between webhooks.
type waits struct{ projects, tokens *share.Pool }

func newWaits() waits { return waits{share.NewPool(waitLimit), share.NewPool(waitLimit)} }

// enter takes a slot for a request, if there is one.
func (w waits) enter(t target) (leave func(), ok bool) {
	project, token := string(t.project), string(t.project)+"/"+t.token
	if !w.tokens.Try(token, 1, tokenWaits) {
		return nil, false
	}
	if !w.projects.Try(project, 1, projectWaits) {
		w.tokens.Release(token, 1)
		return nil, false
	}
	return func() {
		w.projects.Release(project, 1)
		w.tokens.Release(token, 1)
	}, true
}
