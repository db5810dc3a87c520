package xds

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"github.com/prometheus/client_golang/prometheus"
)

// Status says who is connected to the control plane.
type Status struct{ Nodes []Node }

// Node is one connected Envoy.
type Node struct {
	ID, Version string
	Profile     string // the Envoy version whose features it is served, "1.40"
	Since       time.Time
	Endpoints   int    // acknowledged
	LastNack    string // why it refused what it was sent last; "" when it took it
}

// streams follows what every connected Envoy was sent and what it said of it. An acknowledgement is a request with the
// nonce of a response and no error; a refusal keeps what Envoy had before.
type streams struct {
	server.CallbackFuncs

	now      func() time.Time
	log      *slog.Logger
	metrics  *metrics
	registry Registry

	mu   sync.Mutex // guards open, and everything in it
	open map[int64]*stream
}

type stream struct {
	node    *core.Node
	since   time.Time
	sent    map[string]sent                        // by nonce, not answered yet
	known   map[string]map[netip.AddrPort]struct{} // acknowledged endpoints, by cluster
	refused map[string]string                      // why, by type URL
}

// sent is one response on its way.
type sent struct {
	url       string
	endpoints map[string]map[netip.AddrPort]struct{} // by cluster, of an endpoints response
	removed   []string
}

func newStreams(now func() time.Time, log *slog.Logger, m *metrics, r Registry) *streams {
	s := &streams{now: now, log: log, metrics: m, registry: r, open: map[int64]*stream{}}
	s.DeltaStreamOpenFunc = s.opened
	s.DeltaStreamClosedFunc = s.closed
	s.StreamDeltaRequestFunc = s.requested
	s.StreamDeltaResponseFunc = s.responded
	return s
}

func (s *streams) opened(_ context.Context, id int64, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[id] = &stream{node: &core.Node{}, since: s.now(), sent: map[string]sent{}, known: map[string]map[netip.AddrPort]struct{}{},
		refused: map[string]string{}}
	s.metrics.streams.Set(float64(len(s.open)))
	return nil
}

func (s *streams) closed(id int64, _ *core.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
	s.metrics.streams.Set(float64(len(s.open)))
	s.tellLocked()
}

func (s *streams) responded(id int64, _ *discovery.DeltaDiscoveryRequest, resp *discovery.DeltaDiscoveryResponse) {
	out := sent{url: resp.GetTypeUrl()}
	if out.url == resource.EndpointType {
		out.removed = resp.GetRemovedResources()
		out.endpoints = map[string]map[netip.AddrPort]struct{}{}
		for _, r := range resp.GetResources() {
			var cla endpoint.ClusterLoadAssignment
			if err := r.GetResource().UnmarshalTo(&cla); err == nil {
				out.endpoints[cla.GetClusterName()] = addresses(&cla)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.open[id]; st != nil {
		st.sent[resp.GetNonce()] = out
		if out.url == resource.EndpointType {
			s.tellLocked() // from now on this Envoy's word is waited for
		}
	}
}

// requested takes a subscription, an acknowledgement or a refusal.
func (s *streams) requested(id int64, req *discovery.DeltaDiscoveryRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.open[id]
	if st == nil {
		return nil
	}
	if node := req.GetNode(); node.GetId() != "" {
		st.node = node
	}
	answered, ours := st.sent[req.GetResponseNonce()]
	if !ours {
		return nil
	}
	delete(st.sent, req.GetResponseNonce())
	if detail := req.GetErrorDetail(); detail != nil {
		reason := lastLine(detail.GetMessage())
		st.refused[answered.url] = reason
		s.metrics.nacks.WithLabelValues(shortType(answered.url)).Inc()
		s.log.Error("Envoy refused its configuration and keeps what it had", "node", st.node.GetId(), "type", shortType(answered.url),
			"reason", reason)
		return nil
	}
	delete(st.refused, answered.url)
	if answered.url == resource.EndpointType {
		maps.Copy(st.known, answered.endpoints)
		for _, name := range answered.removed {
			delete(st.known, name)
		}
		s.tellLocked()
	}
	return nil
}

// tellLocked tells the registry which addresses every Envoy knows that takes endpoints from us. Without such an Envoy
// nothing has to be acknowledged.
func (s *streams) tellLocked() {
	var common map[netip.AddrPort]struct{}
	subscribers := 0
	for _, st := range s.open {
		if !st.subscribes() {
			continue
		}
		subscribers++
		mine := map[netip.AddrPort]struct{}{}
		for _, addrs := range st.known {
			for a := range addrs {
				if _, ok := common[a]; ok || subscribers == 1 {
					mine[a] = struct{}{}
				}
			}
		}
		common = mine
	}
	s.registry.UseGate(subscribers > 0)
	s.registry.Acknowledged(common)
}

func (st *stream) subscribes() bool {
	if len(st.known) > 0 {
		return true
	}
	for _, out := range st.sent {
		if out.url == resource.EndpointType {
			return true
		}
	}
	return false
}

func (s *streams) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var status Status
	for _, st := range s.open {
		n := Node{ID: st.node.GetId(), Version: release(st.node), Profile: versionOf(st.node).String(), Since: st.since}
		for _, addrs := range st.known {
			n.Endpoints += len(addrs)
		}
		for _, url := range slices.Sorted(maps.Keys(st.refused)) {
			n.LastNack = shortType(url) + ": " + st.refused[url]
		}
		status.Nodes = append(status.Nodes, n)
	}
	slices.SortFunc(status.Nodes, func(a, b Node) int { return strings.Compare(a.ID, b.ID) })
	return status
}

// release is the node's full version, "1.40.0".
func release(node *core.Node) string {
	v := node.GetUserAgentBuildVersion().GetVersion()
	if v == nil {
		return "unknown"
	}
	var b strings.Builder
	for i, n := range []uint32{v.GetMajorNumber(), v.GetMinorNumber(), v.GetPatch()} {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(strconv.FormatUint(uint64(n), 10))
	}
	return b.String()
}

// lastLine is where Envoy says what is wrong; before it stands a dump of the whole resource, which may hold secrets.
func lastLine(message string) string {
	message = strings.TrimSpace(message)
	message = message[strings.LastIndexByte(message, '\n')+1:]
	if len(message) > 500 {
		message = message[len(message)-500:]
	}
	return message
}

// shortType is "Cluster" for type.googleapis.com/envoy.config.cluster.v3.Cluster.
func shortType(url string) string { return url[strings.LastIndexByte(url, '.')+1:] }

// metrics are the figures of the control plane.
type metrics struct {
	streams prometheus.Gauge
	pushes  prometheus.Counter
	nacks   *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "attache_xds_streams", Help: "Envoys connected to the control plane."}),
		pushes: prometheus.NewCounter(prometheus.CounterOpts{Name: "attache_xds_pushes_total",
			Help: "Changes of endpoints that were pushed."}),
		nacks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_xds_nacks_total",
			Help: "Resources that an Envoy refused, by type; it keeps what it had."}, []string{"type"}),
	}
	for _, url := range []string{resource.ListenerType, resource.RouteType, resource.ClusterType, resource.EndpointType} {
		m.nacks.WithLabelValues(shortType(url))
	}
	reg.MustRegister(m.streams, m.pushes, m.nacks)
	return m
}
