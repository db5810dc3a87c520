package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// patience is how long a change may take to be seen on a slow machine.
const patience = 5 * time.Second

// watched is a workers file that a test follows.
type watched struct {
	applied chan []Spec
	bad     chan error
}

// watch opens the file and follows it until the test ends.
func watch(t *testing.T, path string) watched {
	t.Helper()
	w := watched{applied: make(chan []Spec, 100), bad: make(chan error, 100)}
	file, err := OpenFile(FileParams{Path: path, Pool: "main", Engine: VLLM, Log: slog.New(slog.DiscardHandler),
		Apply: func(specs []Spec) { w.applied <- specs }, Bad: func(err error) { w.bad <- err }})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- file.Run(t.Context()) }()
	t.Cleanup(func() { // the test's context has ended by then
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the watch ended: %v", err)
			}
		case <-time.After(patience):
			t.Error("the watch does not end with its context")
		}
	})
	return w
}

// until waits for the list with these names. Others before it are let pass: a write in place may be seen half done.
func (w watched) until(t *testing.T, want string) {
	t.Helper()
	timeout := time.After(patience)
	last := "no list"
	for {
		select {
		case specs := <-w.applied:
			if last = names(specs); last == want {
				return
			}
		case <-timeout:
			t.Fatalf("the list is not %q after %v; the last was %q", want, patience, last)
		}
	}
}

// turnsBad waits for the news of a bad file.
func (w watched) turnsBad(t *testing.T) error {
	t.Helper()
	select {
	case err := <-w.bad:
		return err
	case <-time.After(patience):
		t.Fatalf("the file is not found bad after %v", patience)
		return nil
	}
}

func names(specs []Spec) string {
	list := make([]string, 0, len(specs))
	for _, s := range specs {
		list = append(list, s.Name)
	}
	return strings.Join(list, " ")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace puts a file in place in one step, as editors do.
func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// mount puts a file in place as Kubernetes does with a ConfigMap: the file is a link into the folder "..data", which is
// itself a link, and that one alone is replaced.
func mount(t *testing.T, path, text string) {
	t.Helper()
	dir := filepath.Dir(path)
	data, err := os.MkdirTemp(dir, "..version")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(data, filepath.Base(path)), text)
	if err := os.Symlink(filepath.Base(data), filepath.Join(dir, "..data_tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join("..data", filepath.Base(path)), path); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
}

const (
	listA  = "workers: [{name: a, address: 10.0.0.1:8000}]\n"
	listAB = "workers: [{name: a, address: 10.0.0.1:8000}, {name: b, address: 10.0.0.2:8000}]\n"
	listC  = "workers: [{name: c, address: 10.0.0.3:8000}]\n"
)

func TestWatchedFile(t *testing.T) {
	for _, c := range []struct {
		name string
		put  func(t *testing.T, path, text string)
	}{
		{"written in place", write},
		{"replaced by renaming another over it", replace},
		{"mounted from a ConfigMap", mount},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "workers.yaml")
			c.put(t, path, listA)
			w := watch(t, path)
			w.until(t, "a")
			c.put(t, path, listAB)
			w.until(t, "a b")
			c.put(t, path, listC)
			w.until(t, "c")
		})
	}
}

// TestABusyFolderDoesNotHoldTheFileBack writes a neighbour all the time.
func TestABusyFolderDoesNotHoldTheFileBack(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "workers.yaml")
	write(t, path, listA)
	w := watch(t, path)
	w.until(t, "a")
	busy := time.NewTicker(settle / 4)
	defer busy.Stop()
	replace(t, path, listAB)
	timeout := time.After(patience)
	for {
		select {
		case <-busy.C:
			write(t, filepath.Join(dir, "neighbour"), "x")
		case specs := <-w.applied:
			if names(specs) == "a b" {
				return
			}
		case <-timeout:
			t.Fatal("the change is not seen while the folder is busy")
		}
	}
}

func TestWatchedFileTurnsBad(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(t *testing.T, path string)
		err  string
	}{
		{"an unknown key", func(t *testing.T, path string) {
			replace(t, path, "workers:\n- addr: 10.0.0.1:8000\n")
		}, `line 2: unknown field "addr"`},
		{"a worker that is there twice", func(t *testing.T, path string) {
			replace(t, path, "workers: [{name: a, address: 10.0.0.1:8000}, {name: b, address: 10.0.0.1:8000}]")
		}, "two workers have the address 10.0.0.1:8000"},
		{"the file is removed", func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "workers.yaml")
			write(t, path, listA)
			w := watch(t, path)
			w.until(t, "a")
			c.harm(t, path)
			if err := w.turnsBad(t); !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %q, want %q", err, c.err)
			}
			if len(w.applied) > 0 { // what was applied came before the news of the bad file
				t.Errorf("the list became %q", names(<-w.applied))
			}
			replace(t, path, listAB)
			w.until(t, "a b")
		})
	}
}

func TestOpenFile(t *testing.T) {
	for _, c := range []struct {
		name string
		text string // "" for no file
		err  string
	}{
		{"a missing file", "", "no such file"},
		{"a bad file", "workers:\n- addr: 10.0.0.1:8000\n", `line 2: unknown field "addr"`},
	} {
		path := filepath.Join(t.TempDir(), "workers.yaml")
		if c.text != "" {
			write(t, path, c.text)
		}
		_, err := OpenFile(FileParams{Path: path, Pool: "main", Engine: VLLM, Log: slog.New(slog.DiscardHandler),
			Apply: func(specs []Spec) { t.Errorf("%s: %d workers applied", c.name, len(specs)) }})
		if text := errorText(err); !strings.HasPrefix(text, "workers file "+path+": ") || !strings.Contains(text, c.err) {
			t.Errorf("%s: error %q, want the path and %q", c.name, text, c.err)
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
