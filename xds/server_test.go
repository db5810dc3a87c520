package xds

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"attache/envoy"
	"attache/internal/slot"
	"attache/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeRegistry publishes what it is given and keeps what it is told.
type fakeRegistry struct {
	mu        sync.Mutex
	set       *worker.Set
	observers []func(*worker.Set)
	gate      bool
	known     []string // sorted
}

func (r *fakeRegistry) Observe(f func(*worker.Set)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observers = append(r.observers, f)
	f(r.set)
}

func (r *fakeRegistry) UseGate(on bool) { r.mu.Lock(); defer r.mu.Unlock(); r.gate = on }

func (r *fakeRegistry) Acknowledged(addrs map[netip.AddrPort]struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = nil
	for a := range addrs {
		r.known = append(r.known, a.Addr().String())
	}
	slices.Sort(r.known)
}

// publish replaces who serves: "pool/10.0.0.1 state".
func (r *fakeRegistry) publish(workers ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set = setOf(workers...)
	for _, f := range r.observers {
		f(r.set)
	}
}

// gated is "gate on: a b" as the registry was told last.
func (r *fakeRegistry) gated() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.gate {
		return "off"
	}
	return "on: " + strings.Join(r.known, " ")
}

func setOf(workers ...string) *worker.Set {
	var ws []*worker.Worker
	for i, text := range workers {
		where, state, _ := strings.Cut(text, " ")
		pool, ip, _ := strings.Cut(where, "/")
		if state == "" {
			state = string(worker.Ready)
		}
		addr := netip.AddrPortFrom(netip.MustParseAddr(ip), 8000)
		ws = append(ws, worker.NewWorker(worker.Spec{Name: "w-" + ip, Pool: pool, Addr: addr}, slot.Slot(i), worker.State(state)))
	}
	return worker.NewSet(ws...)
}

// plane is a control plane on a real port, and its registry.
type plane struct {
	*Server

	t        *testing.T
	registry *fakeRegistry
	metrics  *prometheus.Registry
}

func startPlane(t *testing.T, change func(*Config), workers ...string) *plane {
	t.Helper()
	p := &plane{t: t, registry: &fakeRegistry{set: setOf(workers...)}, metrics: prometheus.NewRegistry()}
	cfg := DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	if change != nil {
		change(&cfg)
	}
	var err error
	p.Server, err = New(Params{Config: cfg, Pools: []string{"small", "large"}, Registry: p.registry, Log: slog.New(slog.DiscardHandler),
		Metrics: p.metrics, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		if err := p.Run(t.Context()); err != nil {
			t.Errorf("the control plane ended: %v", err)
		}
	})
	t.Cleanup(done.Wait)
	return p
}

// deltaStream is what both services' streams can do.
type deltaStream = grpc.BidiStreamingClient[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse]

// gateway is an Envoy as far as the protocol goes.
type gateway struct {
	t      *testing.T
	stream deltaStream
	node   *core.Node
	got    chan *discovery.DeltaDiscoveryResponse
	close  func()
}

func (p *plane) connect(id string, minor uint32, endpointsOnly bool) *gateway {
	p.t.Helper()
	conn, err := grpc.NewClient(p.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	g := &gateway{t: p.t, got: make(chan *discovery.DeltaDiscoveryResponse, 100), node: &core.Node{Id: id,
		UserAgentVersionType: &core.Node_UserAgentBuildVersion{UserAgentBuildVersion: &core.BuildVersion{
			Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: minor, Patch: 3}}}}}
	if endpointsOnly {
		g.stream, err = endpointservice.NewEndpointDiscoveryServiceClient(conn).DeltaEndpoints(ctx)
	} else {
		g.stream, err = discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			resp, err := g.stream.Recv()
			if err != nil {
				close(g.got)
				return
			}
			g.got <- resp
		}
	})
	g.close = sync.OnceFunc(func() {
		cancel()
		reading.Wait()
		_ = conn.Close()
	})
	p.t.Cleanup(g.close)
	return g
}

func (g *gateway) send(req *discovery.DeltaDiscoveryRequest) {
	g.t.Helper()
	req.Node, g.node = g.node, nil // Envoy names itself in the first request only
	if err := g.stream.Send(req); err != nil {
		g.t.Fatal(err)
	}
}

func (g *gateway) subscribe(url string, names ...string) {
	g.t.Helper()
	g.send(&discovery.DeltaDiscoveryRequest{TypeUrl: url, ResourceNamesSubscribe: names})
}

// next is the next response, which must be of a type.
func (g *gateway) next(url string) *discovery.DeltaDiscoveryResponse {
	g.t.Helper()
	select {
	case resp := <-g.got:
		if resp.GetTypeUrl() != url {
			g.t.Fatalf("got a response of type %q, want %q", resp.GetTypeUrl(), url)
		}
		return resp
	case <-time.After(10 * time.Second):
		g.t.Fatalf("no response of type %s", url)
		return nil
	}
}

func (g *gateway) ack(resp *discovery.DeltaDiscoveryResponse) {
	g.t.Helper()
	g.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()})
}

func (g *gateway) nack(resp *discovery.DeltaDiscoveryResponse, why string) {
	g.t.Helper()
	g.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce(),
		ErrorDetail: &status.Status{Code: 13, Message: why}})
}

// hosts reads an endpoints response as "cluster: ip=HEALTH ip=HEALTH", one line per cluster.
func hosts(t *testing.T, resp *discovery.DeltaDiscoveryResponse) string {
	t.Helper()
	var lines []string
	for _, r := range resp.GetResources() {
		var cla endpoint.ClusterLoadAssignment
		if err := r.GetResource().UnmarshalTo(&cla); err != nil {
			t.Fatal(err)
		}
		line := cla.GetClusterName() + ":"
		for _, l := range cla.GetEndpoints() {
			for _, e := range l.GetLbEndpoints() {
				line += fmt.Sprintf(" %s=%s", e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress(), e.GetHealthStatus())
			}
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func eventually(t *testing.T, want string, got func() string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); got() != want; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("got  %s\nwant %s", got(), want)
		}
	}
}

// TestAnEnvoyStarts subscribes as Envoy 1.40 does at its start, in its order.
func TestAnEnvoyStarts(t *testing.T) {
	p := startPlane(t, nil, "small/10.0.0.1", "small/10.0.0.2 unhealthy", "large/10.0.0.3 draining")
	g := p.connect("gateway-1", 40, false)
	g.subscribe(resource.ClusterType, "*")
	clusters := g.next(resource.ClusterType)
	var names []string
	for _, r := range clusters.GetResources() {
		var c cluster.Cluster
		if err := r.GetResource().UnmarshalTo(&c); err != nil {
			t.Fatal(err)
		}
		names = append(names, c.GetName())
	}
	slices.Sort(names)
	if want := []string{envoy.PoolCluster("large"), envoy.PoolCluster("small")}; !slices.Equal(names, want) {
		t.Fatalf("clusters %v, want %v", names, want)
	}
	g.ack(clusters)
	g.subscribe(resource.EndpointType, names...)
	endpoints := g.next(resource.EndpointType)
	want := envoy.PoolCluster("large") + ": 10.0.0.3=DRAINING\n" + envoy.PoolCluster("small") + ": 10.0.0.1=HEALTHY 10.0.0.2=UNHEALTHY"
	if got := hosts(t, endpoints); got != want {
		t.Fatalf("endpoints\n%s\nwant\n%s", got, want)
	}
	g.ack(endpoints)
	g.subscribe(resource.ListenerType, "*")
	g.ack(g.next(resource.ListenerType))
	g.subscribe(resource.RouteType, envoy.RouteName)
	g.ack(g.next(resource.RouteType))
	eventually(t, "[gateway-1 1.40.3 1.40 3 ]", func() string { return fmt.Sprint(nodes(p.Server)) })
	if got := testutil.ToFloat64(p.Server.metrics.streams); got != 1 {
		t.Errorf("%v streams, want 1", got)
	}
}

func nodes(s *Server) []string {
	var list []string
	for _, n := range s.Status().Nodes {
		list = append(list, fmt.Sprintf("%s %s %s %d %s", n.ID, n.Version, n.Profile, n.Endpoints, n.LastNack))
	}
	return list
}

func TestOnlyWhatChangedIsPushed(t *testing.T) {
	small, large := envoy.PoolCluster("small"), envoy.PoolCluster("large")
	p := startPlane(t, nil, "small/10.0.0.1", "large/10.0.0.3")
	g := p.connect("gateway-1", 40, true)
	g.subscribe(resource.EndpointType, small, large)
	g.ack(g.next(resource.EndpointType))
	p.registry.publish("small/10.0.0.1", "small/10.0.0.2", "large/10.0.0.3")
	resp := g.next(resource.EndpointType)
	if got, want := hosts(t, resp), small+": 10.0.0.1=HEALTHY 10.0.0.2=HEALTHY"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	g.ack(resp)
	p.registry.publish("small/10.0.0.1", "small/10.0.0.2 syncing", "large/10.0.0.3") // Envoy would see no difference
	p.registry.publish("small/10.0.0.1", "small/10.0.0.2", "large/10.0.0.3 suspect")
	resp = g.next(resource.EndpointType)
	if got, want := hosts(t, resp), large+": 10.0.0.3=UNHEALTHY"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	g.ack(resp)
	// A pool that lost its last worker keeps its cluster and has no endpoints.
	p.registry.publish("small/10.0.0.1", "small/10.0.0.2")
	if got, want := hosts(t, g.next(resource.EndpointType)), large+":"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestTheGate follows what the registry is told while Envoys come, acknowledge, refuse and go.
func TestTheGate(t *testing.T) {
	small := envoy.PoolCluster("small")
	p := startPlane(t, nil, "small/10.0.0.1")
	eventually(t, "off", p.registry.gated)
	first := p.connect("gateway-1", 40, true)
	first.subscribe(resource.EndpointType, small)
	resp := first.next(resource.EndpointType)
	eventually(t, "on: ", p.registry.gated)
	first.ack(resp)
	eventually(t, "on: 10.0.0.1", p.registry.gated)

	second := p.connect("gateway-2", 38, true)
	second.subscribe(resource.EndpointType, small)
	seconds := second.next(resource.EndpointType)
	eventually(t, "on: ", p.registry.gated) // the second Envoy knows nothing yet
	second.ack(seconds)
	eventually(t, "on: 10.0.0.1", p.registry.gated)

	p.registry.publish("small/10.0.0.1", "small/10.0.0.2 syncing")
	firsts, seconds := first.next(resource.EndpointType), second.next(resource.EndpointType)
	first.ack(firsts)
	eventually(t, "on: 10.0.0.1", p.registry.gated)
	second.nack(seconds, "a dump of everything\nmalformed IP address: 10.0.0.2")
	eventually(t, "[gateway-1 1.40.3 1.40 2  gateway-2 1.38.3 1.38 1 ClusterLoadAssignment: malformed IP address: 10.0.0.2]",
		func() string { return fmt.Sprint(nodes(p.Server)) })
	eventually(t, "on: 10.0.0.1", p.registry.gated)
	if got := testutil.ToFloat64(p.Server.metrics.nacks.WithLabelValues("ClusterLoadAssignment")); got != 1 {
		t.Errorf("%v refusals counted, want 1", got)
	}

	second.close()
	eventually(t, "on: 10.0.0.1 10.0.0.2", p.registry.gated)
	p.registry.publish("small/10.0.0.2")
	first.ack(first.next(resource.EndpointType))
	eventually(t, "on: 10.0.0.2", p.registry.gated)
	first.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResponseNonce: "never sent"})
	eventually(t, "on: 10.0.0.2", p.registry.gated)
	first.close()
	eventually(t, "off", p.registry.gated)
	eventually(t, "[]", func() string { return fmt.Sprint(nodes(p.Server)) })
}

// TestARefusalIsForgottenOnceTheNextIsTaken keeps the dashboard honest.
func TestARefusalIsForgottenOnceTheNextIsTaken(t *testing.T) {
	p := startPlane(t, nil, "small/10.0.0.1")
	g := p.connect("gateway-1", 40, true)
	g.subscribe(resource.EndpointType, envoy.PoolCluster("small"))
	g.nack(g.next(resource.EndpointType), "no")
	eventually(t, "[gateway-1 1.40.3 1.40 0 ClusterLoadAssignment: no]", func() string { return fmt.Sprint(nodes(p.Server)) })
	p.registry.publish("small/10.0.0.1", "small/10.0.0.2")
	g.ack(g.next(resource.EndpointType))
	eventually(t, "[gateway-1 1.40.3 1.40 2 ]", func() string { return fmt.Sprint(nodes(p.Server)) })
}

// TestProfiles asks as different versions: an Envoy must never be sent a field that it does not know.
func TestProfiles(t *testing.T) {
	p := startPlane(t, func(c *Config) { c.Gateway.Usage = string(envoy.UsageAI); c.Gateway.HardBodyLimit = 1 << 20 })
	filters := map[uint32]string{}
	for _, minor := range []uint32{0, 37, 38, 39, 40, 41} {
		g := p.connect(fmt.Sprintf("gateway-%d", minor), minor, false)
		g.subscribe(resource.ListenerType, "*")
		resp := g.next(resource.ListenerType)
		if len(resp.GetResources()) != 1 {
			t.Fatalf("1.%d: %d listeners", minor, len(resp.GetResources()))
		}
		var l listener.Listener
		if err := resp.GetResources()[0].GetResource().UnmarshalTo(&l); err != nil {
			t.Fatal(err)
		}
		filters[minor] = fmt.Sprint(strings.Contains(l.String(), "ai_protocol_manager"))
	}
	want := map[uint32]string{0: "false", 37: "false", 38: "false", 39: "false", 40: "true", 41: "true"}
	if !maps.Equal(filters, want) {
		t.Errorf("ai_protocol_manager by version: %v, want %v", filters, want)
	}
}

func TestTypesWithoutResourcesDoNotEndTheStream(t *testing.T) {
	p := startPlane(t, nil, "small/10.0.0.1")
	g := p.connect("gateway-1", 40, false)
	for _, url := range []string{resource.SecretType, resource.RuntimeType, resource.ExtensionConfigType, resource.ScopedRouteType} {
		g.subscribe(url, "*")
	}
	g.subscribe(resource.EndpointType, envoy.PoolCluster("small"))
	for {
		resp := <-g.got
		if resp == nil {
			t.Fatal("the stream was ended")
		}
		if resp.GetTypeUrl() == resource.EndpointType {
			break
		}
	}
}

func TestTheBaselineHasTheFirstPoolsWorkers(t *testing.T) {
	p := startPlane(t, func(c *Config) { c.Gateway.Baseline = "127.0.0.1:0" }, "small/10.0.0.1", "large/10.0.0.2")
	g := p.connect("gateway-1", 40, true)
	g.subscribe(resource.EndpointType, envoy.BaselineCluster)
	if got, want := hosts(t, g.next(resource.EndpointType)), envoy.BaselineCluster+": 10.0.0.1=HEALTHY"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestATakenPortSaysWhose(t *testing.T) {
	p := startPlane(t, nil)
	cfg := DefaultConfig()
	cfg.Listen = p.Addr().String()
	_, err := New(Params{Config: cfg, Pools: []string{"p"}, Registry: p.registry, Log: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewRegistry(), Now: time.Now})
	if err == nil || !strings.HasPrefix(err.Error(), "xds.listen: ") || !strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v", err)
	}
}

func TestLastLine(t *testing.T) {
	for _, c := range []struct{ message, want string }{
		{"", ""},
		{"one", "one"},
		{"Error adding\n{secret: x}\nreason ", "reason"},
		{"dump\n" + strings.Repeat("x", 600), strings.Repeat("x", 500)},
	} {
		if got := lastLine(c.message); got != c.want {
			t.Errorf("lastLine(%.20q) = %.20q, want %.20q", c.message, got, c.want)
		}
	}
}
