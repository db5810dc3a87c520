package envoy

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	maglev "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	override "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	metadata "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// pack wraps an extension's configuration. Messages that are built here always marshal.
func pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

func u32(v uint32) *wrapperspb.UInt32Value { return wrapperspb.UInt32(v) }

func ms(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

// socket is an address of Envoy's: "host:port", or "unix:///path" for a pipe.
func socket(address string) *core.Address {
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		return &core.Address{Address: &core.Address_Pipe{Pipe: &core.Pipe{Path: path}}}
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		n = 0
	}
	if host == "" {
		host = "0.0.0.0"
	}
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: host,
		PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(n)}}}}
}

// Host is one endpoint of a pool.
type Host struct {
	Addr   netip.AddrPort
	Name   string // the worker's, for access logs
	Health core.HealthStatus
}

// Assignment is the endpoints of a cluster.
func Assignment(name string, hosts []Host) *endpoint.ClusterLoadAssignment {
	cla := &endpoint.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpoint.LocalityLbEndpoints{{}}}
	for _, h := range hosts {
		e := &endpoint.LbEndpoint{HealthStatus: h.Health,
			HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: socket(h.Addr.String())}}}
		if h.Name != "" {
			e.Metadata = &core.Metadata{FilterMetadata: map[string]*structpb.Struct{
				SteerNamespace: {Fields: map[string]*structpb.Value{"worker": structpb.NewStringValue(h.Name)}}}}
		}
		cla.Endpoints[0].LbEndpoints = append(cla.Endpoints[0].LbEndpoints, e)
	}
	if len(hosts) == 0 {
		cla.Endpoints = nil
	}
	return cla
}

// unlimited lifts Envoy's circuit breakers: every running request holds one stream to attache and one to a worker, and
// the default of 1024 per cluster ends in 503.
func unlimited() *cluster.CircuitBreakers {
	const million = 1_000_000
	return &cluster.CircuitBreakers{Thresholds: []*cluster.CircuitBreakers_Thresholds{{
		MaxConnections: u32(million), MaxPendingRequests: u32(million), MaxRequests: u32(million), MaxRetries: u32(million)}}}
}

// prompt keeps Envoy from using unhealthy hosts when many are, and from waiting a second, its default, until it acts on
// what health checks and endpoint updates say.
func prompt() *cluster.Cluster_CommonLbConfig {
	return &cluster.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{Value: 0}, UpdateMergeWindow: ms(0)}
}

// EDSSource is where a cluster's endpoints come from.
type EDSSource int

// The sources.
const (
	FromADS    EDSSource = iota // the one stream that everything comes over
	FromXDS                     // a stream of its own to attache: the user's ADS, if any, is not touched
	FromStatic                  // written into the configuration
)

// initialFetch bounds how long a cluster waits for endpoints that the control plane has sent before and does not send
// again; Envoy's default is 15 s.
const initialFetch = 500 * time.Millisecond

func edsConfig(from EDSSource) *core.ConfigSource {
	c := &core.ConfigSource{ResourceApiVersion: core.ApiVersion_V3, InitialFetchTimeout: ms(initialFetch)}
	if from == FromADS {
		c.ConfigSourceSpecifier = &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}}
	} else {
		c.ConfigSourceSpecifier = &core.ConfigSource_ApiConfigSource{ApiConfigSource: deltaSource()}
	}
	return c
}

func deltaSource() *core.ApiConfigSource {
	return &core.ApiConfigSource{ApiType: core.ApiConfigSource_DELTA_GRPC, TransportApiVersion: core.ApiVersion_V3,
		SetNodeOnFirstMessageOnly: true, GrpcServices: []*core.GrpcService{grpcTo(XDSCluster)}}
}

func grpcTo(name string) *core.GrpcService {
	return &core.GrpcService{TargetSpecifier: &core.GrpcService_EnvoyGrpc_{EnvoyGrpc: &core.GrpcService_EnvoyGrpc{ClusterName: name}}}
}

// WorkerCluster is a pool as Envoy sees it: the decision's list first, one entry per attempt, then the fallback policy.
// The list is read from metadata only; a header source could be forged by clients.
func WorkerCluster(pool Pool, from EDSSource) *cluster.Cluster {
	c := workers(PoolCluster(pool.Name), pool, from)
	destination := &metadata.MetadataKey{Key: SteerNamespace, Path: []*metadata.MetadataKey_PathSegment{
		{Segment: &metadata.MetadataKey_PathSegment_Key{Key: DestinationKey}}}}
	served := &metadata.MetadataKey{Key: SteerNamespace, Path: []*metadata.MetadataKey_PathSegment{
		{Segment: &metadata.MetadataKey_PathSegment_Key{Key: ServedKey}}}}
	c.LoadBalancingPolicy = policy("override_host", &override.OverrideHost{
		OverrideHostSources: []*override.OverrideHost_OverrideHostSource{{Metadata: destination}},
		SelectedHostKey:     served,
		FallbackPolicy:      policy("maglev", &maglev.Maglev{}),
	})
	return c
}

// BaselineWorkers are the same hosts under round robin, for comparison.
func BaselineWorkers(pool Pool, from EDSSource) *cluster.Cluster {
	c := workers(BaselineCluster, pool, from)
	c.LbPolicy = cluster.Cluster_ROUND_ROBIN
	return c
}

func policy(name string, m proto.Message) *cluster.LoadBalancingPolicy {
	return &cluster.LoadBalancingPolicy{Policies: []*cluster.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &core.TypedExtensionConfig{Name: "envoy.load_balancing_policies." + name, TypedConfig: pack(m)}}}}
}

func workers(name string, pool Pool, from EDSSource) *cluster.Cluster {
	c := &cluster.Cluster{
		Name: name, ConnectTimeout: ms(time.Second), CircuitBreakers: unlimited(), IgnoreHealthOnHostRemoval: true,
		CommonLbConfig: prompt(), TrackClusterStats: &cluster.TrackClusterStats{PerEndpointStats: true},
	}
	if from == FromStatic {
		c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_STATIC}
		var hosts []Host
		for _, w := range pool.Workers {
			hosts = append(hosts, Host{Addr: w})
		}
		c.LoadAssignment = Assignment(name, hosts)
		return c
	}
	c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_EDS}
	c.EdsClusterConfig = &cluster.Cluster_EdsClusterConfig{ServiceName: name, EdsConfig: edsConfig(from)}
	return c
}

// http2 keeps idle connections to attache alive and notices dead ones.
func http2() map[string]*anypb.Any {
	return map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": pack(&httpv3.HttpProtocolOptions{
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &core.Http2ProtocolOptions{
				ConnectionKeepalive: &core.KeepaliveSettings{Interval: ms(30 * time.Second), Timeout: ms(5 * time.Second)}}}}}})}
}

// attacheCluster reaches ext_proc and the access-log service. It is static in every form, because changing it breaks
// running ext_proc streams. Health check, outlier detection and panic threshold belong together: without any one of them
// a dead replica keeps attracting requests.
func attacheCluster(p Params) *cluster.Cluster {
	c := reach(AttacheCluster, p.ExtProc...)
	c.LbPolicy, c.TransportSocket = cluster.Cluster_LEAST_REQUEST, encrypted(p.TLS)
	c.CircuitBreakers, c.CommonLbConfig = unlimited(), prompt()
	c.OutlierDetection = &cluster.OutlierDetection{
		ConsecutiveGatewayFailure: u32(2), EnforcingConsecutiveGatewayFailure: u32(100), Interval: ms(500 * time.Millisecond),
		BaseEjectionTime: ms(time.Second), MaxEjectionTime: ms(5 * time.Second), MaxEjectionPercent: u32(100),
	}
	c.HealthChecks = []*core.HealthCheck{{
		Timeout: ms(min(500*time.Millisecond, p.HealthInterval)), Interval: ms(p.HealthInterval), NoTrafficInterval: ms(p.HealthInterval),
		UnhealthyThreshold: u32(1), HealthyThreshold: u32(1),
		HealthChecker: &core.HealthCheck_GrpcHealthCheck_{GrpcHealthCheck: &core.HealthCheck_GrpcHealthCheck{ServiceName: ExtProcService}},
	}}
	return c
}

// encrypted is the transport socket for TLS; nil for plain text.
func encrypted(t *TLS) *core.TransportSocket {
	if t == nil {
		return nil
	}
	file := func(name string) *core.DataSource {
		return &core.DataSource{Specifier: &core.DataSource_Filename{Filename: name}}
	}
	common := &tls.CommonTlsContext{
		AlpnProtocols: []string{"h2"},
		ValidationContextType: &tls.CommonTlsContext_ValidationContext{ValidationContext: &tls.CertificateValidationContext{
			TrustedCa: file(t.CA),
			MatchTypedSubjectAltNames: []*tls.SubjectAltNameMatcher{{SanType: tls.SubjectAltNameMatcher_DNS,
				Matcher: &matcher.StringMatcher{MatchPattern: &matcher.StringMatcher_Exact{Exact: t.Name}}}},
		}},
	}
	if t.Cert != "" {
		common.TlsCertificates = []*tls.TlsCertificate{{CertificateChain: file(t.Cert), PrivateKey: file(t.Key)}}
	}
	return &core.TransportSocket{Name: "envoy.transport_sockets.tls", ConfigType: &core.TransportSocket_TypedConfig{
		TypedConfig: pack(&tls.UpstreamTlsContext{Sni: t.Name, CommonTlsContext: common})}}
}

func reach(name string, addresses ...string) *cluster.Cluster {
	c := &cluster.Cluster{
		Name: name, ConnectTimeout: ms(time.Second), TypedExtensionProtocolOptions: http2(),
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_STATIC},
		LoadAssignment:       &endpoint.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpoint.LocalityLbEndpoints{{}}},
	}
	for _, address := range addresses {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" && !strings.HasPrefix(address, "unix://") {
			if _, err := netip.ParseAddr(host); err != nil {
				c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_STRICT_DNS}
			}
		}
		c.LoadAssignment.Endpoints[0].LbEndpoints = append(c.LoadAssignment.Endpoints[0].LbEndpoints, &endpoint.LbEndpoint{
			HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: socket(address)}}})
	}
	return c
}
