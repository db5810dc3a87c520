package dns

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// server is a DNS server over UDP, for Go's own resolver.
type server struct {
	t    *testing.T
	conn net.PacketConn

	mu    sync.Mutex
	hosts map[string]string // name -> addresses; a name without an entry does not exist
	srv   map[string][]net.SRV
	code  dnsmessage.RCode // of every answer, when it is an error
}

// serve answers until the test ends.
func serve(t *testing.T, s *server) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.t, s.conn = t, conn
	var running sync.WaitGroup
	running.Go(s.run)
	t.Cleanup(func() { conn.Close(); running.Wait() })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func (s *server) run() {
	buffer := make([]byte, 4096)
	for {
		n, from, err := s.conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(buffer[:n]); err != nil || len(m.Questions) != 1 {
			s.t.Errorf("a question that is none: %v", err)
			continue
		}
		s.answer(&m)
		text, err := m.Pack()
		if err != nil {
			s.t.Errorf("packing an answer: %v", err)
			continue
		}
		_, _ = s.conn.WriteTo(text, from)
	}
}

func (s *server) answer(m *dnsmessage.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := m.Questions[0]
	m.Header = dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionAvailable: true, RCode: s.code}
	m.Additionals = nil
	if s.code != dnsmessage.RCodeSuccess {
		return
	}
	header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: dnsmessage.ClassINET, TTL: 1}
	add := func(body dnsmessage.ResourceBody) {
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: body})
	}
	name := q.Name.String()
	addresses, host := s.hosts[name]
	records, service := s.srv[name]
	if !host && !service {
		m.RCode = dnsmessage.RCodeNameError
		return
	}
	for _, text := range strings.Fields(addresses) {
		switch ip := netip.MustParseAddr(text); {
		case ip.Is4() && q.Type == dnsmessage.TypeA:
			add(&dnsmessage.AResource{A: ip.As4()})
		case ip.Is6() && q.Type == dnsmessage.TypeAAAA:
			add(&dnsmessage.AAAAResource{AAAA: ip.As16()})
		}
	}
	for _, r := range records {
		if q.Type == dnsmessage.TypeSRV {
			add(&dnsmessage.SRVResource{Priority: r.Priority, Weight: r.Weight, Port: r.Port, Target: dnsmessage.MustNewName(r.Target)})
		}
	}
}

// TestARealServer holds what the rules build on against Go's own resolver: what is an answer without records, what is a failure.
func TestARealServer(t *testing.T) {
	s := &server{}
	h := &heard{}
	resolver := serve(t, s)
	host := New(Params{Config: Config{Name: "e.test.", Port: 8000}, Resolver: resolver, Source: h})
	service := New(Params{Config: Config{Name: "_http._tcp.e.test.", SRV: true}, Resolver: resolver, Source: h})
	hosts := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	for _, step := range []struct {
		name  string
		n     *Name
		hosts map[string]string
		srv   []net.SRV
		code  dnsmessage.RCode
		want  string // the beginning of what the source is told
	}{
		{"A and AAAA", host, hosts("e.test.", "10.0.0.1 10.0.0.2 fd00::1"), nil, 0, "apply e.test:8000#10.0.0.1 e.test:8000#10.0.0.2"},
		{"AAAA alone", host, hosts("e.test.", "fd00::1"), nil, 0, "apply e.test:8000#fd00::1"},
		{"SERVFAIL", host, nil, nil, dnsmessage.RCodeServerFailure, "failed: addresses of e.test.: "},
		{"REFUSED", host, nil, nil, dnsmessage.RCodeRefused, "failed: addresses of e.test.: "},
		{"the name is there without addresses", host, hosts("e.test.", ""), nil, 0, ""},
		{"NXDOMAIN, the second time in a row", host, nil, nil, 0, "apply "},
		{"SRV", service, hosts("a.test.", "10.0.0.1", "b.test.", "fd00::2"), []net.SRV{{Target: "a.test.", Port: 8000}, {Target: "b.test.", Port: 8001}}, 0,
			"apply a.test:8000#10.0.0.1 b.test:8001#fd00::2"},
		{"SRV, one host is gone", service, hosts("a.test.", "10.0.0.1"), []net.SRV{{Target: "a.test.", Port: 8000}, {Target: "b.test.", Port: 8001}}, 0,
			"apply a.test:8000#10.0.0.1"},
		{"SRV, SERVFAIL", service, nil, nil, dnsmessage.RCodeServerFailure, "failed: SRV records of _http._tcp.e.test.: "},
		{"SRV, NXDOMAIN", service, nil, nil, 0, ""},
		{"SRV, NXDOMAIN again", service, nil, nil, 0, "apply "},
	} {
		s.mu.Lock()
		s.hosts, s.srv, s.code = step.hosts, map[string][]net.SRV{}, step.code
		if step.srv != nil {
			s.srv["_http._tcp.e.test."] = step.srv
		}
		s.mu.Unlock()
		step.n.follow(t.Context())
		if got := h.take(); !strings.HasPrefix(got, step.want) || step.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
}
