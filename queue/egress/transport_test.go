package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// direct is a proxy function for no proxy.
func direct(*http.Request) (*url.URL, error) { return nil, nil }

func get(t testing.TB, rt http.RoundTripper, url string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// wantForbidden expects a dial error, which the queue treats as a call that did not reach the function.
func wantForbidden(t testing.TB, what string, err error) {
	t.Helper()
	var dial *net.OpError
	var forbidden *ForbiddenError
	if !errors.As(err, &dial) || dial.Op != "dial" || !errors.As(err, &forbidden) {
		t.Errorf("%s: got %v, want a forbidden dial", what, err)
	}
}

// wantNoAddress expects the dial error of a name that leads nowhere, with nothing else in its text.
func wantNoAddress(t testing.TB, what, host string, err error) {
	t.Helper()
	var dial *net.OpError
	if !errors.As(err, &dial) || dial.Op != "dial" || err.Error() != "dial tcp: "+(&NoAddressError{host}).Error() {
		t.Errorf("%s: got %v, want that %s has no address", what, err, host)
	}
}

// TestNamesThatLeadNowhereAreAlike: an error does not tell whether a name is unknown or has a forbidden address, nor
// which one.
func TestNamesThatLeadNowhereAreAlike(t *testing.T) {
	t.Parallel()
	for what, addresses := range map[string][]string{
		"unknown": {}, "private": {"10.0.0.1"}, "loopback": {"127.0.0.1"}, "metadata": {"169.254.169.254"},
		"private ones": {"10.0.0.1", "192.168.0.1"},
	} {
		transport := Allowed{}.transport(&http.Transport{}, direct, names(t, addresses))
		_, err := get(t, transport, "http://secret.example:81")
		wantNoAddress(t, what, "secret.example", err)
	}
}

// greeter is a server that answers every request with the greeting.
func greeter(t testing.TB, greeting string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, greeting)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestTransportRejectsForbiddenAddresses(t *testing.T) {
	t.Parallel()
	s := greeter(t, "hello")
	port := s.URL[strings.LastIndex(s.URL, ":"):]
	for _, u := range []string{s.URL, "http://[::ffff:127.0.0.1]" + port, "http://0.0.0.0" + port} {
		_, err := get(t, Allowed{}.transport(&http.Transport{}, direct, nil), u)
		wantForbidden(t, u, err)
	}
	_, err := get(t, Allowed{}.transport(&http.Transport{}, direct, nil), "http://localhost"+port)
	wantNoAddress(t, "a name", "localhost", err)
	allowed := parse(t, Loopback).transport(&http.Transport{}, direct, nil)
	defer allowed.CloseIdleConnections()
	if got, err := get(t, allowed, s.URL); err != nil || got != "hello" {
		t.Errorf("allowed: got %q, %v", got, err)
	}
}

// names is a resolver that returns the given answers to IPv4 queries one after the other, and then repeats the last.
func names(t testing.TB, answers ...[]string) *net.Resolver {
	t.Helper()
	var asked atomic.Int64
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer func() { _ = server.Close() }()
			for {
				query := make([]byte, 2)
				if _, err := io.ReadFull(server, query); err != nil {
					return
				}
				query = make([]byte, binary.BigEndian.Uint16(query))
				if _, err := io.ReadFull(server, query); err != nil {
					return
				}
				var addrs []string
				if end := len(questionOf(query)); query[12+end-3] == 1 { // type A
					addrs = answers[min(asked.Add(1), int64(len(answers)))-1]
				}
				if _, err := server.Write(reply(query, addrs)); err != nil {
					return
				}
			}
		}()
		return client, nil
	}}
}

// questionOf returns the question section of a DNS query: labels, a zero, type and class.
func questionOf(query []byte) []byte {
	end := 12
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	return query[12 : end+5]
}

// reply returns the DNS response to a query, prefixed with its length as over TCP.
func reply(query []byte, addrs []string) []byte {
	m := []byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, byte(len(addrs)), 0, 0, 0, 0}
	m = append(m, questionOf(query)...)
	for _, a := range addrs {
		ip := netip.MustParseAddr(a).As4()
		m = append(m, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		m = append(m, ip[:]...)
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...)
}

// TestDNSRebindingIsRejected: the address that was resolved before the dial does not count.
func TestDNSRebindingIsRejected(t *testing.T) {
	t.Parallel()
	s := greeter(t, "the inside")
	port := s.URL[strings.LastIndex(s.URL, ":"):]
	resolver := names(t, []string{"203.0.113.7"}, []string{"127.0.0.1"})

	// A check before the call would find a public address.
	found, err := resolver.LookupNetIP(t.Context(), "ip4", "rebind.example")
	if err != nil || len(found) != 1 || (Allowed{}).Check(found[0]) != nil {
		t.Fatalf("first lookup: got %v, %v", found, err)
	}
	_, err = get(t, Allowed{}.transport(&http.Transport{}, direct, resolver), "http://rebind.example"+port)
	wantNoAddress(t, "the second lookup", "rebind.example", err)

	// The same answer is reached when it is allowed, which proves that the name resolves to it.
	open := parse(t, Loopback).transport(&http.Transport{}, direct, resolver)
	defer open.CloseIdleConnections()
	if got, err := get(t, open, "http://rebind.example"+port); err != nil || got != "the inside" {
		t.Errorf("allowed: got %q, %v", got, err)
	}
}

// TestEveryAddressOfANameIsChecked includes the addresses that the dialer tries after the first.
func TestEveryAddressOfANameIsChecked(t *testing.T) {
	t.Parallel()
	errPublic := errors.New("public, but not to be connected to by a test")
	var tried []string
	transport := Allowed{}.transport(&http.Transport{}, direct, names(t, []string{"203.0.113.7", "10.0.0.1"}))
	guarded := net.Dialer{
		Timeout: time.Minute, Resolver: names(t, []string{"203.0.113.7", "10.0.0.1"}),
		ControlContext: func(ctx context.Context, network, address string, c syscall.RawConn) error {
			tried = append(tried, address)
			if err := (Allowed{}).control(ctx, network, address, c); err != nil {
				return err
			}
			return errPublic
		},
	}
	transport.direct.DialContext = guarded.DialContext
	_, err := get(t, transport, "http://both.example:81")
	if !errors.Is(err, errPublic) || fmt.Sprint(tried) != "[203.0.113.7:81 10.0.0.1:81]" {
		t.Errorf("got %v after %v", err, tried)
	}
}

// TestProxyResolvesNames: the proxy's own address is not checked, and it resolves names. Literal addresses are still
// checked, and requests that bypass the proxy cannot reach it.
func TestProxyResolvesNames(t *testing.T) {
	t.Parallel()
	proxy := greeter(t, "the proxy")
	where, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	through := Allowed{}.transport(&http.Transport{}, func(r *http.Request) (*url.URL, error) {
		if r.URL.Host == where.Host {
			return nil, nil // as ProxyFromEnvironment does for loopback
		}
		return where, nil
	}, nil)
	defer through.CloseIdleConnections()
	if got, err := get(t, through, "http://internal.example/"); err != nil || got != "the proxy" {
		t.Errorf("a name: got %q, %v", got, err)
	}
	_, err = get(t, through, "http://169.254.169.254/latest/meta-data")
	wantForbidden(t, "an address", err)
	_, err = get(t, through, proxy.URL)
	wantForbidden(t, "the proxy itself", err)
}

// TestRejectedRequestBodyIsClosed, as the contract of http.RoundTripper requires.
func TestRejectedRequestBodyIsClosed(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x.example", closing{closed})
	if err != nil {
		t.Fatal(err)
	}
	noProxy := errors.New("no such proxy")
	broken := func(*http.Request) (*url.URL, error) { return nil, noProxy }
	resp, err := Allowed{}.transport(&http.Transport{}, broken, nil).RoundTrip(r)
	if !errors.Is(err, noProxy) {
		t.Errorf("got %v, %v", resp, err)
	}
	<-closed
}

type closing struct{ closed chan struct{} }

func (closing) Read([]byte) (int, error) { return 0, io.EOF }
func (c closing) Close() error           { close(c.closed); return nil }
