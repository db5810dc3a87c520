package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"attache/internal/bubble"
	"attache/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answers is a resolver that says what it is told to. Names that it does not have are not there.
type answers struct {
	mu    sync.Mutex
	hosts map[string]string // host -> addresses, separated by spaces; "!" fails
	srv   map[string][]*net.SRV
	asked int
}

var errServer = &net.DNSError{Err: "server misbehaving", Name: "x", IsTemporary: true}

func notFound(name string) error {
	return &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

func (a *answers) LookupNetIP(_ context.Context, network, host string) (ips []netip.Addr, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	for _, text := range strings.Fields(a.hosts[host]) {
		if text == "!" {
			return nil, errServer
		}
		if ip := netip.MustParseAddr(text); (network == "ip4") == ip.Unmap().Is4() {
			ips = append(ips, ip)
		}
	}
	if len(ips) == 0 {
		return nil, notFound(host)
	}
	return ips, nil
}

func (a *answers) LookupSRV(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	switch records := a.srv[name]; {
	case service+proto != "":
		return "", nil, errors.New("the name was not given whole")
	case records == nil:
		return "", nil, notFound(name)
	case len(records) == 0:
		return "", nil, errServer
	default:
		return name, records, nil
	}
}

// say changes an answer, and returns how often was asked before.
func (a *answers) say(host, answer string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hosts[host] = answer
	return a.asked
}

func (a *answers) looks() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

// heard is what a source was told, in words. A list that is not confirmed ends with "!".
type heard struct {
	list []string
	text []string
}

func (h *heard) Apply(specs []worker.Spec) {
	h.list = nil
	for _, s := range specs {
		h.list = append(h.list, s.Name)
	}
	h.text = append(h.text, "apply "+strings.Join(h.list, " ")+"!")
}

func (h *heard) Confirm() {
	if last := len(h.text) - 1; last >= 0 && strings.HasSuffix(h.text[last], "!") {
		h.text[last] = strings.TrimSuffix(h.text[last], "!") // a list that is given on holds
		return
	}
	h.text = append(h.text, "confirm")
}

func (h *heard) Failed(err error) { h.text = append(h.text, "failed: "+err.Error()) }

func (h *heard) take() string {
	text := strings.Join(h.text, "; ")
	h.text = nil
	return text
}

func TestAnswers(t *testing.T) {
	srv := func(target string, port uint16) *net.SRV { return &net.SRV{Target: target, Port: port} }
	for _, c := range []struct {
		name   string
		config Config
		hosts  map[string]string
		srv    map[string][]*net.SRV
		want   string
	}{
		{"every address is a worker", Config{Name: "e", Port: 8000}, map[string]string{"e": "10.0.0.2 10.0.0.1"}, nil,
			"apply e:8000#10.0.0.1 e:8000#10.0.0.2"},
		{"the final dot is no part of a worker's name", Config{Name: "e.", Port: 8000}, map[string]string{"e.": "10.0.0.1"}, nil, "apply e:8000#10.0.0.1"},
		{"an engine with both families is one worker", Config{Name: "e", Port: 8000}, map[string]string{"e": "10.0.0.1 fd00::1"}, nil,
			"apply e:8000#10.0.0.1"},
		{"IPv6 where there is nothing else", Config{Name: "e", Port: 8000}, map[string]string{"e": "fd00::1"}, nil, "apply e:8000#fd00::1"},
		{"IPv6 where it is wanted", Config{Name: "e", Port: 8000, Family: IPv6}, map[string]string{"e": "10.0.0.1 fd00::1"}, nil,
			"apply e:8000#fd00::1"},
		{"no IPv6 where IPv4 is wanted", Config{Name: "e", Port: 8000, Family: IPv4}, map[string]string{"e": "fd00::1"}, nil, "confirm"},
		{"IPv4 written as IPv6", Config{Name: "e", Port: 8000}, map[string]string{"e": "::ffff:10.0.0.1"}, nil, "apply e:8000#10.0.0.1"},
		{"addresses that are none, or are given twice", Config{Name: "e", Port: 8000}, map[string]string{"e": "0.0.0.0 10.0.0.1 10.0.0.1"}, nil,
			"apply e:8000#10.0.0.1"},
		{"nobody at the start", Config{Name: "e", Port: 8000}, nil, nil, "confirm"},
		{"a failure", Config{Name: "e", Port: 8000}, map[string]string{"e": "!"}, nil, "failed: addresses of e: lookup x: server misbehaving"},
		{"hosts and ports of SRV records", Config{Name: "s", SRV: true}, map[string]string{"a.": "10.0.0.2", "b.": "10.0.0.1"},
			map[string][]*net.SRV{"s": {srv("a.", 8000), srv("b.", 8001), srv("b.", 8000)}},
			"apply b:8000#10.0.0.1 b:8001#10.0.0.1 a:8000#10.0.0.2"},
		{"one address behind two hosts", Config{Name: "s", SRV: true}, map[string]string{"a.": "10.0.0.1", "b.": "10.0.0.1"},
			map[string][]*net.SRV{"s": {srv("b.", 8000), srv("a.", 8000)}}, "apply a:8000#10.0.0.1"},
		{"a host of SRV records that is gone", Config{Name: "s", SRV: true}, map[string]string{"a.": "10.0.0.1"},
			map[string][]*net.SRV{"s": {srv("a.", 8000), srv("b.", 8000)}}, "apply a:8000#10.0.0.1"},
		{"a host of SRV records that fails: half a list is none", Config{Name: "s", SRV: true}, map[string]string{"a.": "10.0.0.1", "b.": "!"},
			map[string][]*net.SRV{"s": {srv("a.", 8000), srv("b.", 8000)}}, "failed: addresses of b.: lookup x: server misbehaving"},
		{"SRV's word for nobody", Config{Name: "s", SRV: true}, map[string]string{".": "10.0.0.1"},
			map[string][]*net.SRV{"s": {srv(".", 0)}}, "confirm"},
		{"no SRV records", Config{Name: "s", SRV: true}, nil, nil, "confirm"},
		{"SRV records that fail", Config{Name: "s", SRV: true}, nil, map[string][]*net.SRV{"s": {}},
			"failed: SRV records of s: lookup x: server misbehaving"},
	} {
		var h heard
		New(Params{Config: c.config, Resolver: &answers{hosts: c.hosts, srv: c.srv}, Source: &h}).follow(t.Context())
		if got := h.take(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestWhatAWorkerIs(t *testing.T) {
	var specs []worker.Spec
	n := New(Params{Config: Config{Name: "e", Port: 8000, Labels: map[string]string{"zone": "a"}}, Pool: "p", Fallback: worker.SGLang,
		Resolver: &answers{hosts: map[string]string{"e": "fd00::1"}}, Source: &heard{}})
	n.follow(t.Context())
	specs = n.specs()
	if got := fmt.Sprintf("%+v", specs); got != "[{Name:e:8000#fd00::1 Pool:p Address:[fd00::1]:8000 Addr:[fd00::1]:8000 Engine:sglang Drain:false "+
		"Labels:map[zone:a] Events:{Off:false Endpoint: Replay: Topic: Ranks:0 FirstRank:0} Source:}]" {
		t.Error(got)
	}
}

// TestAsTimeGoes follows a name whose answers change.
func TestAsTimeGoes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, h := &answers{hosts: map[string]string{}}, &heard{}
		n := New(Params{Config: Config{Name: "e", Port: 8000, Interval: time.Second}, Resolver: a, Source: h})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		const one, two, failed = "apply e:8000#10.0.0.1", "apply e:8000#10.0.0.1 e:8000#10.0.0.2", "failed: addresses of e: lookup x: server misbehaving"
		for i, step := range []struct{ answer, want string }{
			{"", "confirm"}, {"10.0.0.1", one}, {"10.0.0.1", "confirm"}, {"10.0.0.2 10.0.0.1", two}, {"10.0.0.1 10.0.0.2", "confirm"},
			{"!", failed}, {"!", failed}, {"10.0.0.1 10.0.0.2", "confirm"},
			{"", ""}, {"10.0.0.1", one}, // it was a slip
			{"", ""}, {"!", failed}, {"", ""}, // a failure is no answer, and does not make two in a row
			{"", "apply "}, {"", "confirm"}, {"10.0.0.1", one},
		} {
			if i > 0 {
				time.Sleep(50 * time.Millisecond) // between two look-ups, which are 1 to 1.1 s apart
			}
			synctest.Wait()
			if i == 0 {
				h.take() // of the first look-up, with the answer of before
			}
			before := a.say("e", step.answer)
			for a.looks() == before {
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
			}
			if got := h.take(); got != step.want {
				t.Fatalf("step %d, answer %q: %q, want %q", i, step.answer, got, step.want)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// hanging is a resolver that answers no sooner than it must.
type hanging struct{ *answers }

func (hanging) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestAResolverThatHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := &heard{}
		n := New(Params{Config: Config{Name: "e", Port: 8000}, Resolver: hanging{}, Source: h})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		time.Sleep(timeout + time.Second)
		synctest.Wait()
		if got := h.take(); got != "failed: addresses of e: context deadline exceeded" {
			t.Errorf("%q, want a failure after %v", got, timeout)
		}
		time.Sleep(defaultInterval) // it hangs again
		cancel()
		<-ended
		if got := h.take(); got != "" {
			t.Errorf("%q, want nothing: the end is no failure", got)
		}
	})
}

// TestAnyAnswers draws what a resolver says, and compares with the rule in plain words: the list is that of the last answer with
// records, unless the last two looks both found none.
func TestAnyAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, h := &answers{hosts: map[string]string{}}, &heard{}
		n := New(Params{Config: Config{Name: "e", Port: 1}, Resolver: a, Source: h})
		var said, want []string
		for range rapid.IntRange(1, 30).Draw(t, "looks") {
			ips := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}), 0, 3, rapid.ID).Draw(t, "answer")
			answer := strings.Join(ips, " ")
			if rapid.Float64().Draw(t, "fails") < 0.2 {
				answer = "!"
			}
			a.hosts["e"] = answer
			n.follow(t.Context())
			said = append(said, answer)
			switch last := len(said) - 1; {
			case answer == "!":
			case answer != "":
				want = nil
				for _, ip := range slices.Sorted(slices.Values(ips)) {
					want = append(want, "e:1#"+ip)
				}
			case last > 0 && said[last-1] == "":
				want = nil
			}
			if !slices.Equal(h.list, want) {
				t.Fatalf("after %q: %q, want %q", said, h.list, want)
			}
		}
	})
}
