package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"

	"attache/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// heard is what a source was told. It is safe for concurrent use.
type heard struct {
	mu    sync.Mutex
	specs []worker.Spec
	lists int
	good  int
	err   string // "" since the last confirmation
}

func (h *heard) Apply(specs []worker.Spec) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.specs = specs
	h.lists++
}

func (h *heard) Confirm() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.good++
	h.err = ""
}

func (h *heard) Failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err.Error()
}

// list is who there is, in words: name=address, draining ones in brackets.
func (h *heard) list() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return words(h.specs)
}

func (h *heard) failure() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

func words(specs []worker.Spec) string {
	var list []string
	for _, s := range specs {
		text := strings.TrimPrefix(s.Name, "models/") + "=" + s.Address
		if s.Drain {
			text = "(" + text + ")"
		}
		list = append(list, text)
	}
	return strings.Join(list, " ")
}

// follow follows a cluster until the test ends.
func follow(t *testing.T, c Config, client dynamic.Interface) *heard {
	t.Helper()
	h := &heard{}
	d := over(Params{Config: c, Pool: "p", Fallback: worker.VLLM, EventsPort: 5557, Source: h}, client, "models")
	d.backoff = &apiwait.Backoff{Duration: 10 * time.Millisecond, Cap: 50 * time.Millisecond, Factor: 2, Steps: 3}
	d.retry = 10 * time.Millisecond
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(running.Wait) // the test's context ends before its clean-up begins
	return h
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func (h *heard) until(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); h.list() != want; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the list is %q (%s), want %q", h.list(), h.failure(), want)
		}
	}
}

// host is an endpoint of a slice: the pod "a" has the address 10.0.0.97. conditions are among "ready serving terminating", and those
// left out are false; "" leaves all unsaid.
func host(name, conditions string) object {
	said := object{}
	for _, c := range []string{"ready", "serving", "terminating"} {
		if conditions != "" {
			said[c] = strings.Contains(conditions, c)
		}
	}
	return object{"addresses": []any{fmt.Sprintf("10.0.0.%d", name[0])}, "conditions": said,
		"targetRef": object{"kind": "Pod", "namespace": "models", "name": name}}
}

// slice is an EndpointSlice of the service "vllm" with one port, http 8000.
func slice(name string, hosts ...object) object {
	endpoints := []any{}
	for _, h := range hosts {
		endpoints = append(endpoints, h)
	}
	return object{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
		"metadata": object{"namespace": "models", "name": name, "labels": object{"kubernetes.io/service-name": "vllm"}},
		"ports":    []any{object{"name": "http", "port": int64(8000)}}}
}

// engine is a pod of the app "vllm" with a label that only it has.
func engine(name string, ready bool) object {
	return object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"namespace": "models", "name": name, "labels": object{"app": "vllm", "only": name}},
		"status": object{"phase": "Running", "podIP": fmt.Sprintf("10.0.0.%d", name[0]),
			"conditions": []any{object{"type": "Ready", "status": map[bool]string{true: "True", false: "False"}[ready]}}}}
}

func with(o object, change func(object)) object {
	change(o)
	return o
}

func TestAService(t *testing.T) {
	s := newAPIServer(t)
	other := slice("other", host("x", ""))
	metaOf(other)["labels"] = object{"kubernetes.io/service-name": "other"}
	s.put(pathSlices, slice("vllm-1", host("a", "ready serving")), other)
	h := follow(t, Config{Service: "vllm"}, s.client(t))
	h.until(t, "a=10.0.0.97:8000")
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"a second slice", func() { s.put(pathSlices, slice("vllm-2", host("b", ""))) }, "a=10.0.0.97:8000 b=10.0.0.98:8000"},
		{"a pod starts", func() { s.put(pathSlices, slice("vllm-2", host("b", "ready serving"), host("c", "none"))) },
			"a=10.0.0.97:8000 b=10.0.0.98:8000"},
		{"it is ready", func() { s.put(pathSlices, slice("vllm-2", host("b", "ready serving"), host("c", "ready serving"))) },
			"a=10.0.0.97:8000 b=10.0.0.98:8000 c=10.0.0.99:8000"},
		{"one terminates", func() { s.put(pathSlices, slice("vllm-1", host("a", "serving terminating"))) },
			"(a=10.0.0.97:8000) b=10.0.0.98:8000 c=10.0.0.99:8000"},
		{"one is not ready for now", func() { s.put(pathSlices, slice("vllm-2", host("b", "none"), host("c", "ready serving"))) },
			"(a=10.0.0.97:8000) (b=10.0.0.98:8000) c=10.0.0.99:8000"},
		{"it is back, the other serves no more", func() {
			s.put(pathSlices, slice("vllm-2", host("b", "ready serving"), host("c", "ready serving")), slice("vllm-1", host("a", "terminating")))
		}, "(a=10.0.0.97:8000) b=10.0.0.98:8000 c=10.0.0.99:8000"},
		{"it is gone", func() { s.put(pathSlices, slice("vllm-1")) }, "b=10.0.0.98:8000 c=10.0.0.99:8000"},
		{"a slice is deleted", func() { s.remove(pathSlices, "vllm-2") }, ""},
	} {
		t.Log(step.name)
		step.do()
		h.until(t, step.want)
	}
	if got := h.failure(); got != "" {
		t.Errorf("a failure is told: %s", got)
	}
}

// TestChangesThatAreForgotten has a watch end because its version is too old.
func TestChangesThatAreForgotten(t *testing.T) {
	s := newAPIServer(t)
	s.put(pathSlices, slice("vllm-1", host("a", "")))
	h := follow(t, Config{Service: "vllm"}, s.client(t))
	h.until(t, "a=10.0.0.97:8000")
	eventually(t, "a watch", func() bool { return s.count("watch") > 0 })
	s.forget(pathSlices, slice("vllm-1", host("b", "")))
	h.until(t, "b=10.0.0.98:8000")
	s.put(pathSlices, slice("vllm-1", host("c", "")))
	h.until(t, "c=10.0.0.99:8000")
	if lists, gone := s.count("list"), s.count("gone"); lists < 2 || gone == 0 {
		t.Errorf("%d lists, %d watches ended so; want a second list", lists, gone)
	}
	if got := h.failure(); got != "" {
		t.Errorf("a failure is told: %s", got)
	}
}

func TestAnAPIServerThatIsLost(t *testing.T) {
	s := newAPIServer(t)
	s.put(pathSlices, slice("vllm-1", host("a", "")))
	h := follow(t, Config{Service: "vllm"}, s.client(t))
	h.until(t, "a=10.0.0.97:8000")
	s.fail(true)
	eventually(t, "a failure", func() bool { return strings.HasPrefix(h.failure(), "endpointslices: ") })
	s.put(pathSlices, slice("vllm-1", host("b", "")))
	if got := h.list(); got != "a=10.0.0.97:8000" {
		t.Errorf("the list is %q, want the last one kept", got)
	}
	s.fail(false)
	h.until(t, "b=10.0.0.98:8000")
	eventually(t, "all is well", func() bool { return h.failure() == "" })
}

func TestAnAPIServerThatIsNotThereAtTheStart(t *testing.T) {
	s := newAPIServer(t)
	s.fail(true)
	h := follow(t, Config{Service: "vllm"}, s.client(t))
	eventually(t, "a failure", func() bool { return h.failure() != "" })
	s.put(pathSlices, slice("vllm-1", host("a", "")))
	s.fail(false)
	h.until(t, "a=10.0.0.97:8000")
}

func TestLabelsOfPods(t *testing.T) {
	s := newAPIServer(t)
	s.forbidden[pathPods] = true
	s.put(pathPods, engine("a", true))
	s.put(pathSlices, slice("vllm-1", with(host("a", ""), func(o object) { o["zone"] = "eu-1a" })))
	h := follow(t, Config{Service: "vllm", PodLabels: true, Labels: map[string]string{"tier": "gold", "only": "configured"}}, s.client(t))
	of := func() string {
		h.mu.Lock()
		defer h.mu.Unlock()
		return fmt.Sprint(h.specs[0].Labels)
	}
	h.until(t, "a=10.0.0.97:8000")
	if want := "map[only:configured tier:gold topology.kubernetes.io/zone:eu-1a]"; of() != want {
		t.Errorf("labels %s, want %s", of(), want)
	}
	eventually(t, "the failure is told", func() bool { return strings.HasPrefix(h.failure(), "pods: ") })
	s.edit(func() { s.forbidden[pathPods] = false })
	eventually(t, "labels of the pod", func() bool { return of() == "map[app:vllm only:a tier:gold topology.kubernetes.io/zone:eu-1a]" })
	eventually(t, "all is well", func() bool { return h.failure() == "" })
}

func inference(app string, ports ...int) object {
	list := []any{}
	for _, p := range ports {
		list = append(list, object{"number": int64(p)})
	}
	return object{"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": object{"namespace": "models", "name": "pool"},
		"spec": object{"selector": object{"matchLabels": object{"app": app}}, "targetPorts": list}}
}

func TestAnInferencePool(t *testing.T) {
	s := newAPIServer(t)
	other := engine("x", true)
	metaOf(other)["labels"] = object{"app": "other"}
	s.put(pathPods, engine("a", true), engine("b", false), other)
	s.put(pathPool, inference("vllm", 8000), with(inference("other", 1), func(o object) { metaOf(o)["name"] = "another" }))
	h := follow(t, Config{InferencePool: "pool"}, s.client(t))
	h.until(t, "a=10.0.0.97:8000")
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"a pod gets ready", func() { s.put(pathPods, engine("b", true)) }, "a=10.0.0.97:8000 b=10.0.0.98:8000"},
		{"a pod is deleted, and serves on", func() {
			s.put(pathPods, with(engine("a", true), func(o object) { metaOf(o)["deletionTimestamp"] = "2026-01-01T00:00:00Z" }))
		}, "(a=10.0.0.97:8000) b=10.0.0.98:8000"},
		{"it is gone", func() { s.remove(pathPods, "a") }, "b=10.0.0.98:8000"},
		{"two ports are two ranks", func() { s.put(pathPool, inference("vllm", 8001, 8000)) }, "b:8000=10.0.0.98:8000 b:8001=10.0.0.98:8001"},
		{"a pool that is gone changes nothing", func() { s.remove(pathPool, "pool"); s.put(pathPods, engine("c", true)) },
			"b:8000=10.0.0.98:8000 b:8001=10.0.0.98:8001 c:8000=10.0.0.99:8000 c:8001=10.0.0.99:8001"},
		{"another selector", func() { s.put(pathPool, inference("other", 8000)) }, "x=10.0.0.120:8000"},
		{"a pod is over", func() {
			s.put(pathPods, with(other, func(o object) { o["status"].(object)["phase"] = "Failed" }))
		}, ""},
	} {
		t.Log(step.name)
		step.do()
		h.until(t, step.want)
	}
	eventually(t, "all is well", func() bool { return h.failure() == "" })
	s.put(pathPool, inference("vllm", 0))
	eventually(t, "a pool that makes no sense", func() bool { return h.failure() == "InferencePool pool: a target port is 0: must be 1 to 65535" })
	s.put(pathPool, with(inference("vllm", 8000), func(o object) { o["spec"].(object)["selector"] = object{"matchLabels": object{}} }))
	eventually(t, "a pool of everything", func() bool {
		return h.failure() == "InferencePool pool: its selector is empty; it must not choose every pod"
	})
}

func TestAnInferencePoolOfBefore(t *testing.T) {
	s := newAPIServer(t)
	s.put(pathPods, engine("a", true))
	s.put(pathPoolBeta, object{"apiVersion": "inference.networking.x-k8s.io/v1alpha2", "kind": "InferencePool",
		"metadata": object{"namespace": "models", "name": "pool"}, "spec": object{"selector": object{"app": "vllm"}, "targetPortNumber": int64(8000)}})
	h := follow(t, Config{InferencePool: "pool"}, s.client(t))
	h.until(t, "a=10.0.0.97:8000")
}

func TestAClusterWithoutInferencePools(t *testing.T) {
	s := newAPIServer(t)
	h := follow(t, Config{InferencePool: "pool"}, s.client(t))
	eventually(t, "a failure", func() bool { return strings.HasPrefix(h.failure(), "inferencepools: the cluster has no such resource") })
	s.edit(func() { s.objects[pathPool] = map[string]object{} })
	eventually(t, "no such pool", func() bool { return h.failure() == "InferencePool pool: there is none of this name" })
}

// TestWhatAWorkerIs reads slices and ports as they may be, from client-go's own fake of a cluster.
func TestWhatAWorkerIs(t *testing.T) {
	ports := func(o object, list ...any) object {
		var ports []any
		for i := 0; i < len(list); i += 2 {
			ports = append(ports, object{"name": list[i], "port": int64(list[i+1].(int))})
		}
		o["ports"] = ports
		return o
	}
	ipv6 := func(o object) object {
		o["addressType"] = "IPv6"
		for i, h := range o["endpoints"].([]any) {
			h.(object)["addresses"] = []any{fmt.Sprintf("fd00::%d", i+1)}
		}
		return o
	}
	for _, c := range []struct {
		name   string
		config Config
		slices []object
		want   string
		err    string
	}{
		{"a slice without ports needs one", Config{Service: "vllm"}, []object{ports(slice("s", host("a", "")))}, "", ""},
		{"the configured port counts everywhere", Config{Service: "vllm", Port: 9000}, []object{ports(slice("s", host("a", ""))), slice("t", host("b", ""))},
			"a=10.0.0.97:9000 b=10.0.0.98:9000", ""},
		{"several ports, and no word which", Config{Service: "vllm"}, []object{ports(slice("s", host("a", "")), "http", 8000, "kv", 5557)}, "",
			"endpoints: an EndpointSlice has the ports http, kv: say by port_name or port which one the engines serve at"},
		{"the port of a name", Config{Service: "vllm", PortName: "http"}, []object{ports(slice("s", host("a", "")), "kv", 5557, "http", 8000)},
			"a=10.0.0.97:8000", ""},
		{"ports whose names begin alike are ranks", Config{Service: "vllm", PortName: "rank-*"},
			[]object{ports(slice("s", host("a", "")), "kv", 5557, "rank-1", 8001, "rank-0", 8000)}, "a:8000=10.0.0.97:8000 a:8001=10.0.0.97:8001", ""},
		{"IPv6", Config{Service: "vllm"}, []object{ipv6(slice("s", host("a", ""), host("b", "")))}, "a=[fd00::1]:8000 b=[fd00::2]:8000", ""},
		{"a pod with both families is one worker", Config{Service: "vllm"}, []object{ipv6(slice("s", host("b", ""), host("a", ""))), slice("t", host("a", ""))},
			"a=10.0.0.97:8000 b=[fd00::1]:8000", ""},
		{"an address in two slices, which do not agree", Config{Service: "vllm"},
			[]object{slice("s", host("a", "serving terminating")), slice("t", host("a", "ready serving"))}, "a=10.0.0.97:8000", ""},
		{"nobody's pod", Config{Service: "vllm"}, []object{slice("s", with(host("a", ""), func(o object) { delete(o, "targetRef") }))},
			"10.0.0.97:8000=10.0.0.97:8000", ""},
		{"a selector of one's own", Config{Selector: "tier in (gpu)"},
			[]object{slice("s", host("a", "")), with(slice("t", host("b", "")), func(o object) { metaOf(o)["labels"] = object{"tier": "gpu"} })},
			"b=10.0.0.98:8000", ""},
		{"an address that is none", Config{Service: "vllm"}, []object{slice("s", with(host("a", ""), func(o object) { o["addresses"] = []any{"a.b"} }))}, "",
			`endpoints: an EndpointSlice: endpoints[0].addresses[0]: "a.b": must be an IP address`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var objects []runtime.Object
			for _, o := range c.slices {
				objects = append(objects, &unstructured.Unstructured{Object: o})
			}
			client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
				map[schema.GroupVersionResource]string{slicesResource: "EndpointSliceList", podsResource: "PodList"}, objects...)
			h := follow(t, c.config, client)
			eventually(t, "a list or a failure", func() bool {
				h.mu.Lock()
				defer h.mu.Unlock()
				return h.err != "" || h.lists > 0 && h.good > 0
			})
			if got := h.list(); got != c.want || h.failure() != c.err {
				t.Errorf("%q, error %q; want %q, %q", got, h.failure(), c.want, c.err)
			}
		})
	}
}

// TestRanksOfAPod have the pool's port of events, shifted.
func TestRanksOfAPod(t *testing.T) {
	m := maker{p: &Params{Pool: "p", Config: Config{Engine: worker.VLLM}, EventsPort: 5557, ReplayPort: 5657}}
	addr, _ := address("10.0.0.1")
	for _, c := range []struct {
		ports []uint16
		want  []worker.EventSource
	}{
		{[]uint16{8000}, []worker.EventSource{{}}},
		{[]uint16{8000, 8001}, []worker.EventSource{
			{Endpoint: "tcp://10.0.0.1:5557", Replay: "tcp://10.0.0.1:5657", Ranks: 1},
			{Endpoint: "tcp://10.0.0.1:5558", Replay: "tcp://10.0.0.1:5658", Ranks: 1, FirstRank: 1}}},
	} {
		var got []worker.EventSource
		for _, s := range m.specs([]endpoint{{pod: "models/a", addr: addr, ports: c.ports, state: ready}}) {
			got = append(got, s.Events)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("ports %v: %+v, want %+v", c.ports, got, c.want)
		}
	}
	m.p.EventsPort = 0
	if got := m.events(addr, 1); got != (worker.EventSource{Ranks: 1, FirstRank: 1}) {
		t.Errorf("%+v, want no endpoint where the pool has no port", got)
	}
}

func TestReachingACluster(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	if err := os.WriteFile(good, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"clusters": [{"name": "k", "cluster": {"server": "https://10.0.0.1:6443"}}], "users": [{"name": "u", "user": {"token": "t"}}],
"contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "of-the-context"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name            string
		config          Config
		namespace, fail string
	}{
		{"the namespace of the context", Config{Service: "s", Kubeconfig: good}, "of-the-context", ""},
		{"the namespace of the configuration", Config{Service: "s", Kubeconfig: good, Namespace: "own"}, "own", ""},
		{"no such file", Config{Service: "s", Kubeconfig: filepath.Join(dir, "none")}, "", "kubernetes discovery service/s: "},
		{"not in a cluster", Config{Service: "s"}, "", "kubernetes discovery service/s: no kubeconfig is given, and attache is no pod of a cluster"},
	} {
		d, err := New(Params{Config: c.config, Source: &heard{}})
		switch {
		case c.fail != "":
			if err == nil || !strings.HasPrefix(err.Error(), c.fail) {
				t.Errorf("%s: error %v, want %s", c.name, err, c.fail)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case d.namespace != c.namespace:
			t.Errorf("%s: %s, want %s", c.name, d.namespace, c.namespace)
		}
	}
}
