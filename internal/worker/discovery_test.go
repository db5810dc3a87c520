package worker

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParseAddress(t *testing.T) {
	const rule = "must be host:port, such as 10.0.0.1:8000 or [fd00::1]:8000"
	for _, c := range []struct {
		name, address string
		host          string
		port          uint16
		err           string
	}{
		{"IPv4", "10.0.0.1:8000", "10.0.0.1", 8000, ""},
		{"IPv6 in brackets", "[fd00::1]:8000", "fd00::1", 8000, ""},
		{"IPv6 with a zone", "[fe80::1%eth0]:8000", "fe80::1%eth0", 8000, ""},
		{"a host name", "gpu-a.models.svc:8000", "gpu-a.models.svc", 8000, ""},
		{"the highest port", "10.0.0.1:65535", "10.0.0.1", 65535, ""},

		{"no port", "10.0.0.1", "", 0, rule},
		{"an empty port", "10.0.0.1:", "", 0, rule},
		{"port 0", "10.0.0.1:0", "", 0, rule},
		{"a port beyond 65535", "10.0.0.1:70000", "", 0, rule},
		{"a negative port", "10.0.0.1:-1", "", 0, rule},
		{"a port by name", "10.0.0.1:http", "", 0, rule},
		{"no host", ":8000", "", 0, rule},
		{"empty brackets", "[]:8000", "", 0, rule},
		{"IPv6 without brackets", "fd00::1", "", 0, rule},
		{"IPv6 and port without brackets", "fd00::1:8000", "", 0, rule},
		{"a URL", "http://10.0.0.1:8000", "", 0, rule},
		{"nothing", "", "", 0, rule},
	} {
		host, port, err := ParseAddress(c.address)
		if host != c.host || port != c.port || errorText(err) != c.err {
			t.Errorf("%s: %q, %d, %v; want %q, %d, %q", c.name, host, port, err, c.host, c.port, c.err)
		}
	}
}

// goodFiles and badFiles are workers files, read for the pool "main" whose engine is vLLM. All addresses are literal: no
// test looks a host name up.
var goodFiles = []struct {
	name string
	text string
	want []Spec
}{
	{"everything about a worker", `
workers:
- name: gpu-a
  address: 10.0.0.1:8000
  pool: large
  engine: sglang
  drain: true
  labels: {rack: r1, zone: eu-1}
`, []Spec{{Name: "gpu-a", Pool: "large", Address: "10.0.0.1:8000", Addr: netip.MustParseAddrPort("10.0.0.1:8000"), Engine: SGLang,
		Drain: true, Labels: map[string]string{"rack": "r1", "zone": "eu-1"}}}},
	{"name, pool and engine are taken from the address and the pool", "workers:\n- address: 10.0.0.1:8000\n",
		[]Spec{spec("10.0.0.1:8000", "10.0.0.1:8000")}},
	{"workers keep the order of the file", `
workers:
- {name: b, address: 10.0.0.2:8000}
- {name: a, address: "[fd00::1]:8000"}
`, []Spec{spec("b", "10.0.0.2:8000"), spec("a", "[fd00::1]:8000")}},
	{"two ports of one host are two workers", "workers: [{address: 10.0.0.1:8000}, {address: 10.0.0.1:8001}]",
		[]Spec{spec("10.0.0.1:8000", "10.0.0.1:8000"), spec("10.0.0.1:8001", "10.0.0.1:8001")}},
	{"JSON", `{"workers": [{"name": "a", "address": "10.0.0.1:8000", "drain": false, "labels": {"rack": "r1"}}]}`,
		[]Spec{{Name: "a", Pool: "main", Address: "10.0.0.1:8000", Addr: netip.MustParseAddrPort("10.0.0.1:8000"), Engine: VLLM,
			Labels: map[string]string{"rack": "r1"}}}},
	{"llm-d's endpoints, whose port is a number or a text", `
endpoints:
- {name: a, namespace: default, address: 10.0.0.1, port: 8000}
- {name: b, address: 10.0.0.2, port: "8001"}
- {address: fd00::1, port: 8000}
`, []Spec{spec("default/a", "10.0.0.1:8000"), spec("b", "10.0.0.2:8001"), spec("[fd00::1]:8000", "[fd00::1]:8000")}},
	{"both lists", `
workers: [{name: a, address: 10.0.0.1:8000}]
endpoints: [{name: b, address: 10.0.0.2, port: 8000, labels: {rack: r2}}]
`,
		[]Spec{spec("a", "10.0.0.1:8000"), {Name: "b", Pool: "main", Address: "10.0.0.2:8000",
			Addr: netip.MustParseAddrPort("10.0.0.2:8000"), Engine: VLLM, Labels: map[string]string{"rack": "r2"}}}},
	{"no workers", "workers: []\n", nil},
	{"where a worker publishes its events", `
workers:
- name: a
  address: 10.0.0.1:8000
  events: {endpoint: "tcp://10.0.0.1:5557", replay: "tcp://10.0.0.1:5657", topic: kv, ranks: 4, first_rank: 8}
- {name: b, address: 10.0.0.2:8000, events: {off: true}}
`, []Spec{
		{Name: "a", Pool: "main", Address: "10.0.0.1:8000", Addr: netip.MustParseAddrPort("10.0.0.1:8000"), Engine: VLLM,
			Events: EventSource{Endpoint: "tcp://10.0.0.1:5557", Replay: "tcp://10.0.0.1:5657", Topic: "kv", Ranks: 4, FirstRank: 8}},
		{Name: "b", Pool: "main", Address: "10.0.0.2:8000", Addr: netip.MustParseAddrPort("10.0.0.2:8000"), Engine: VLLM,
			Events: EventSource{Off: true}},
	}},
}

// spec is what a file that says no more than name and address makes.
func spec(name, address string) Spec {
	return Spec{Name: name, Pool: "main", Address: address, Addr: netip.MustParseAddrPort(address), Engine: VLLM}
}

var badFiles = []struct {
	name string
	text string
	err  string
}{
	{"an unknown key", "workers:\n- address: 10.0.0.1:8000\n  weight: 5\n", `line 3: unknown field "weight"`},
	{"an unknown key at the top", "pools: []\n", `line 1: unknown field "pools"`},
	{"an unknown key in JSON", "{\"workers\": [\n{\"addr\": \"10.0.0.1:8000\"}]}", `line 2: unknown field "addr"`},
	{"an unknown engine", "workers:\n- {name: a, address: 10.0.0.1:8000, engine: triton}\n",
		`worker a: engine "triton": must be auto, vllm, sglang or trtllm`},
	{"an endpoint of events without a scheme", "workers:\n- {name: a, address: 10.0.0.1:8000, events: {endpoint: 10.0.0.1:5557}}\n",
		`worker a: events.endpoint: "10.0.0.1:5557": must be tcp://host:port or ipc://path`},
	{"replays without events", "workers:\n- {name: a, address: 10.0.0.1:8000, events: {replay: \"tcp://10.0.0.1:5657\"}}\n",
		"worker a: events.replay: needs events.endpoint as well"},
	{"more ranks than any engine has", "workers:\n- {name: a, address: 10.0.0.1:8000, events: {ranks: 1000}}\n",
		"worker a: events.ranks: 1000: must be 0 (as its metrics show) to 256"},
	{"a first rank below 0", "workers:\n- {name: a, address: 10.0.0.1:8000, events: {first_rank: -1}}\n",
		"worker a: events.first_rank: -1: must not be negative"},
	{"an address without a port", "workers:\n- {name: a, address: 10.0.0.1}\n",
		`"10.0.0.1": must be host:port, such as 10.0.0.1:8000 or [fd00::1]:8000`},
	{"a worker without an address", "workers:\n- {name: a}\n", `"": must be host:port, such as 10.0.0.1:8000 or [fd00::1]:8000`},
	{"an address with a path", "workers:\n- {name: a, address: \"engine/v1:8000\"}\n", `"engine/v1:8000": must be host:port`},
	{"nothing, which may be a file that is being written", "", "must not be empty; write `workers: []` when there are none"},
	{"nothing but a comment", "# none yet\n", "must not be empty; write `workers: []` when there are none"},
	{"a second document", listA + "---\n" + listC, `must be one YAML document; a line "---" begins a second one`},
	{"an endpoint without a port", "endpoints:\n- {address: 10.0.0.1, port: 8000}\n- {address: 10.0.0.1}\n",
		`endpoints[1]: address "10.0.0.1", port <nil>: must be an IP address and, apart from it, a port`},
	{"an endpoint whose address has a port", "endpoints:\n- {address: \"10.0.0.1:8000\", port: 8000}\n",
		`endpoints[0]: address "10.0.0.1:8000", port 8000: must be an IP address and, apart from it, a port`},
	{"an endpoint whose port is out of range", "endpoints:\n- {address: 10.0.0.1, port: 70000}\n",
		`"10.0.0.1:70000": must be host:port, such as 10.0.0.1:8000 or [fd00::1]:8000`},
	{"two workers of one name", "workers:\n- {name: a, address: 10.0.0.1:8000}\n- {name: a, address: 10.0.0.2:8000}\n",
		`two workers are called "a"; every worker needs a name of its own`},
	{"two workers of one address", "workers:\n- {name: a, address: 10.0.0.1:8000}\n- {name: b, address: 10.0.0.1:8000}\n",
		"two workers have the address 10.0.0.1:8000"},
	{"one address written as IPv4 and as IPv6",
		"workers:\n- {name: a, address: 10.0.0.1:8000}\n- {name: b, address: \"[::ffff:10.0.0.1]:8000\"}\n",
		"two workers have the address 10.0.0.1:8000"},
	{"one address in both lists", "workers: [{name: a, address: 10.0.0.1:8000}]\nendpoints: [{name: b, address: 10.0.0.1, port: 8000}]\n",
		"two workers have the address 10.0.0.1:8000"},
	{"a list that is given twice", "workers:\n- {address: 10.0.0.1:8000}\nworkers: []\n", `line 3: mapping key "workers" already defined`},
	{"a value of another type", "workers:\n- address: 10.0.0.1:8000\n  drain: maybe\n", "line 3: cannot unmarshal string"},
	{"a sentence", "these are no workers\n", "line 1: string was used where mapping is expected"},
	{"what is no YAML", "workers:\n- address: [10.0.0.1\n", "line 2: "},
	{"a file of more than 8 MiB", strings.Repeat("#", maxFile+1), "the file exceeds 8 MiB"},
}

func TestWorkersFile(t *testing.T) {
	for _, c := range goodFiles {
		got, err := parseFile([]byte(c.text), "main", VLLM)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.name, diff)
		}
	}
	for _, c := range badFiles {
		if _, err := parseFile([]byte(c.text), "main", VLLM); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %q, want %q", c.name, errorText(err), c.err)
		}
	}
}

func FuzzWorkersFile(f *testing.F) {
	for _, c := range goodFiles {
		f.Add([]byte(c.text))
	}
	for _, c := range badFiles {
		if len(c.text) < 1<<10 {
			f.Add([]byte(c.text))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !literal(text) {
			t.Skip("a host name would be looked up")
		}
		specs, err := parseFile(text, "main", VLLM)
		if err != nil {
			return
		}
		seen := map[netip.AddrPort]bool{}
		for _, s := range specs {
			if s.Name == "" || s.Pool == "" || !s.Addr.IsValid() || s.Addr.Port() == 0 || !s.Engine.Valid() || seen[s.Addr] {
				t.Errorf("%q: %+v", text, s)
			}
			seen[s.Addr] = true
		}
	})
}

// literal reports whether a workers file names its hosts by IP addresses alone.
func literal(text []byte) bool {
	var form fileForm
	if yaml.UnmarshalWithOptions(text, &form, yaml.Strict()) != nil {
		return true // it is refused before any address is read
	}
	addresses := make([]string, 0, len(form.Workers)+len(form.Endpoints))
	for _, w := range form.Workers {
		addresses = append(addresses, w.Address)
	}
	for _, e := range form.Endpoints {
		addresses = append(addresses, net.JoinHostPort(e.Address, fmt.Sprint(e.Port)))
	}
	for _, a := range addresses {
		host, _, err := ParseAddress(a)
		if err != nil {
			continue // refused, too
		}
		if _, err := netip.ParseAddr(host); err != nil {
			return false
		}
	}
	return true
}
