package envoy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	apikey "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/api_key_auth/v3"
	bodylimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/body_size_limit/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	jwt "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	locallimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	early "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	override "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	metadata "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

const httpPrefix = "envoy.filters.http."

// unpack is the other direction of pack; it fails where the configuration is missing or of another type.
func unpack[M proto.Message](t *testing.T, a *anypb.Any, into M) M {
	t.Helper()
	if err := a.UnmarshalTo(into); err != nil {
		t.Fatal(err)
	}
	return into
}

func manager(t *testing.T, l *listener.Listener) *hcm.HttpConnectionManager {
	t.Helper()
	return unpack(t, l.GetFilterChains()[0].GetFilters()[0].GetTypedConfig(), &hcm.HttpConnectionManager{})
}

// order is the names of filters without what they have in common.
func order(fs []*hcm.HttpFilter) string {
	var names []string
	for _, f := range fs {
		names = append(names, strings.TrimPrefix(f.GetName(), httpPrefix))
	}
	return strings.Join(names, " ")
}

// config is what the filter of that name is configured with.
func config[M proto.Message](t *testing.T, fs []*hcm.HttpFilter, name string, into M) M {
	t.Helper()
	for _, f := range fs {
		if f.GetName() == httpPrefix+name {
			return unpack(t, f.GetTypedConfig(), into)
		}
	}
	t.Fatalf("no %s among %s", name, order(fs))
	return into
}

func keys(p *Params) {
	p.Security.Keys = []Key{{"alice", "sk-of-alice"}, {"bob", "sk-of-bob"}}
}

func tokens(p *Params) {
	p.Security.JWT = &JWT{Issuer: "https://issuer.example", JWKS: `{"keys":[]}`, ClientClaim: "azp"}
}

func limits(p *Params) {
	p.Security.MaxBody = 1 << 20
	p.Security.RateLimit = &RateLimit{Requests: 60, Per: time.Minute, Clients: map[string]uint32{"alice": 600}}
}

// with is the full parameters, changed.
func with(changes ...func(*Params)) Params {
	p := full()
	for _, change := range changes {
		change(&p)
	}
	return p
}

// Requests pass the filters in this order. What turns requests away stands in front of attache, so that it never sees
// them; who the client is must be known before its rate is looked at; the router is last, or Envoy refuses the listener.
func TestFiltersStandInOrder(t *testing.T) {
	for _, c := range []struct {
		name   string
		params Params
		want   string
	}{
		{"by default nobody is turned away, and tokens are counted in streams and in plain answers", with(),
			"ext_proc sse_to_metadata json_to_metadata router"},
		{"tokens are not counted", with(func(p *Params) { p.Usage = UsageNone }),
			"ext_proc router"},
		{"tokens are counted by Envoy's own AI filter", with(func(p *Params) { p.Usage = UsageAI }),
			"ext_proc ai_protocol_manager router"},
		{"everything in front, clients are known by keys", with(keys, limits),
			"body_size_limit api_key_auth local_ratelimit ext_proc sse_to_metadata json_to_metadata router"},
		{"everything in front, clients are known by tokens", with(tokens, limits),
			"body_size_limit jwt_authn local_ratelimit ext_proc sse_to_metadata json_to_metadata router"},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The order must not depend on the way that the listener takes to Envoy.
			for _, viaRDS := range []bool{false, true} {
				if got := order(manager(t, Listener(c.params, viaRDS)).GetHttpFilters()); got != c.want {
					t.Errorf("via RDS %v:\n got %s\nwant %s", viaRDS, got, c.want)
				}
			}
		})
	}
}

// An extension that Envoy does not know makes it refuse the whole configuration, so that older ones get less.
func TestVersionsGetWhatTheyKnow(t *testing.T) {
	wanting := func(v Version) Params {
		return with(keys, limits, func(p *Params) { p.Version, p.Usage = v, UsageAI })
	}
	const before40 = "api_key_auth local_ratelimit ext_proc sse_to_metadata json_to_metadata router"
	for _, c := range []struct {
		version    Version
		filters    string
		retryAfter bool // the header on 429
	}{
		{38, before40, false},
		{39, before40, false},
		{40, "body_size_limit api_key_auth local_ratelimit ext_proc ai_protocol_manager router", true},
	} {
		t.Run(c.version.String(), func(t *testing.T) {
			p := wanting(c.version)
			fs := httpFilters(p)
			if got := order(fs); got != c.filters {
				t.Errorf("filters\n got %s\nwant %s", got, c.filters)
			}
			if got := config(t, fs, "local_ratelimit", &locallimit.LocalRateLimit{}).GetEnableRetryAfterHeader(); got != c.retryAfter {
				t.Errorf("retry-after on 429: %v, want %v", got, c.retryAfter)
			}
			text, err := Render(ModeAttach, p)
			if err != nil {
				t.Fatal(err)
			}
			for _, word := range []string{"body_size_limit", "ai_protocol_manager", "enable_retry_after_header"} {
				if got, want := strings.Contains(text, word), c.version >= 40; got != want {
					t.Errorf("%s is printed: %v, want %v", word, got, want)
				}
			}
			if head := "# Envoy " + c.version.String() + " or newer;"; !strings.Contains(text, head) {
				t.Errorf("the text does not say %q", head)
			}
		})
	}
	if !proto.Equal(Listener(wanting(38), false), Listener(wanting(39), false)) {
		t.Error("1.38 and 1.39 know the same and get different listeners")
	}
	// What nobody asked for brings no difference between versions.
	if !proto.Equal(Listener(with(func(p *Params) { p.Version = 38 }), false), Listener(with(), false)) {
		t.Error("without the extras of 1.40, 1.38 and 1.40 get different listeners")
	}
}

func TestExtProcFilter(t *testing.T) {
	filterOf := func(p Params) *extproc.ExternalProcessor {
		return unpack(t, ExtProc(p).GetTypedConfig(), &extproc.ExternalProcessor{})
	}
	open := filterOf(with())

	t.Run("by default it fails open and sees the request's headers and whole body, nothing else", func(t *testing.T) {
		want := &extproc.ProcessingMode{
			RequestHeaderMode: extproc.ProcessingMode_SEND, RequestBodyMode: extproc.ProcessingMode_BUFFERED,
			RequestTrailerMode: extproc.ProcessingMode_SKIP, ResponseHeaderMode: extproc.ProcessingMode_SKIP,
			ResponseBodyMode: extproc.ProcessingMode_NONE, ResponseTrailerMode: extproc.ProcessingMode_SKIP,
		}
		if !open.GetFailureModeAllow() || !proto.Equal(open.GetProcessingMode(), want) {
			t.Errorf("fails open: %v, mode %v; want true, %v", open.GetFailureModeAllow(), open.GetProcessingMode(), want)
		}
	})
	t.Run("failing closed changes that and nothing else", func(t *testing.T) {
		closed := filterOf(with(func(p *Params) { p.FailClosed = true }))
		if closed.GetFailureModeAllow() || closed.GetStatusOnError().GetCode() != 503 {
			t.Errorf("fails open: %v, with %v; want 503", closed.GetFailureModeAllow(), closed.GetStatusOnError())
		}
		closed.FailureModeAllow = true
		if !proto.Equal(open, closed) {
			t.Errorf("more differs:\n open %v\nclosed %v", open, closed)
		}
	})
	t.Run("headers of answers are sent where attache adds to them, and nothing else differs", func(t *testing.T) {
		told := filterOf(with(func(p *Params) { p.AnswerHeaders = true }))
		if got := told.GetProcessingMode().GetResponseHeaderMode(); got != extproc.ProcessingMode_SEND {
			t.Errorf("response headers %s", got)
		}
		told.ProcessingMode.ResponseHeaderMode = extproc.ProcessingMode_SKIP
		if !proto.Equal(open, told) {
			t.Errorf("more differs:\n%v\n%v", open, told)
		}
	})
	t.Run("bodies of answers may be asked for where that is wanted, and nothing else differs", func(t *testing.T) {
		asked := filterOf(with(func(p *Params) { p.AnswerBodies = true }))
		mode := asked.GetProcessingMode()
		if !asked.GetAllowModeOverride() || mode.GetResponseHeaderMode() != extproc.ProcessingMode_SEND || mode.GetResponseBodyMode() != extproc.ProcessingMode_NONE {
			t.Errorf("allowed %t, response headers %s, bodies %s", asked.GetAllowModeOverride(), mode.GetResponseHeaderMode(), mode.GetResponseBodyMode())
		}
		asked.AllowModeOverride, mode.ResponseHeaderMode = false, extproc.ProcessingMode_SKIP
		if !proto.Equal(open, asked) {
			t.Errorf("more differs:\n%v\n%v", open, asked)
		}
	})
	t.Run("full duplex changes the body's mode and sends trailers: request trailers as Envoy demands, response trailers to keep the stream", func(t *testing.T) {
		duplex := filterOf(with(func(p *Params) { p.FullDuplex = true }))
		mode := duplex.GetProcessingMode()
		if mode.GetRequestBodyMode() != extproc.ProcessingMode_FULL_DUPLEX_STREAMED ||
			mode.GetRequestTrailerMode() != extproc.ProcessingMode_SEND || mode.GetResponseTrailerMode() != extproc.ProcessingMode_SEND {
			t.Errorf("body %s, trailers %s, of the response %s", mode.GetRequestBodyMode(), mode.GetRequestTrailerMode(), mode.GetResponseTrailerMode())
		}
		mode.RequestBodyMode, mode.RequestTrailerMode = extproc.ProcessingMode_BUFFERED, extproc.ProcessingMode_SKIP
		mode.ResponseTrailerMode = extproc.ProcessingMode_SKIP
		if !proto.Equal(open, duplex) {
			t.Errorf("more differs:\nbuffered %v\n  duplex %v", open, duplex)
		}
	})
	t.Run("it waits as long as it is told", func(t *testing.T) {
		f := filterOf(with(func(p *Params) { p.MessageTimeout, p.MaxMessageTimeout = 3*time.Second, time.Minute }))
		if one, all := f.GetMessageTimeout().AsDuration(), f.GetMaxMessageTimeout().AsDuration(); one != 3*time.Second || all != time.Minute {
			t.Errorf("for a reply %s, in the queue %s; want 3s and 1m", one, all)
		}
	})
	t.Run("metadata passes both ways", func(t *testing.T) {
		// Without envoy.lb among those received, Envoy drops every decision and says nothing.
		o := open.GetMetadataOptions()
		if got, want := o.GetReceivingNamespaces().GetUntyped(), []string{SteerNamespace, NoteNamespace}; !slices.Equal(got, want) {
			t.Errorf("from attache %q, want %q", got, want)
		}
		sent := []string{SteerNamespace, SubsetNamespace, NoteNamespace}
		if got := o.GetForwardingNamespaces().GetUntyped(); !slices.Equal(got, sent) {
			t.Errorf("to attache %q, want %q", got, sent)
		}
	})
	t.Run("another replica is asked at once", func(t *testing.T) {
		service := open.GetGrpcService()
		if got := service.GetEnvoyGrpc().GetClusterName(); got != AttacheCluster {
			t.Errorf("it asks %q, want %q", got, AttacheCluster)
		}
		// Envoy's default of 1 s for the first pause would stall requests for longer than the message timeout.
		retry := service.GetRetryPolicy()
		times, pause := retry.GetNumRetries().GetValue(), retry.GetRetryBackOff().GetBaseInterval().AsDuration()
		if times < 1 || pause <= 0 || pause > 100*time.Millisecond {
			t.Errorf("%d retries, the first after %s", times, pause)
		}
		for _, on := range []string{"connect-failure", "unavailable", "reset"} {
			if !slices.Contains(strings.Split(retry.GetRetryOn(), ","), on) {
				t.Errorf("no retry on %s: %s", on, retry.GetRetryOn())
			}
		}
	})
}

// hosts are the addresses of an assignment, pipes by their path.
func hosts(c *cluster.Cluster) string {
	var all []string
	for _, locality := range c.GetLoadAssignment().GetEndpoints() {
		for _, e := range locality.GetLbEndpoints() {
			a := e.GetEndpoint().GetAddress()
			if pipe := a.GetPipe(); pipe != nil {
				all = append(all, "pipe "+pipe.GetPath())
				continue
			}
			all = append(all, fmt.Sprintf("%s %d", a.GetSocketAddress().GetAddress(), a.GetSocketAddress().GetPortValue()))
		}
	}
	return strings.Join(all, ", ")
}

// checkRoomy wants limits that no gateway reaches, and hosts that are known to be ill left alone.
func checkRoomy(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, limit := range c.GetCircuitBreakers().GetThresholds() {
		for what, n := range map[string]uint32{
			"connections": limit.GetMaxConnections().GetValue(), "pending requests": limit.GetMaxPendingRequests().GetValue(),
			"requests": limit.GetMaxRequests().GetValue(), "retries": limit.GetMaxRetries().GetValue(),
		} {
			if n < 1_000_000 {
				t.Errorf("%s: at most %d %s", c.GetName(), n, what)
			}
		}
	}
	if n := len(c.GetCircuitBreakers().GetThresholds()); n != 1 {
		t.Errorf("%s: %d circuit breakers, want 1; Envoy's own open at 1024", c.GetName(), n)
	}
	// Absent means 50 %.
	if panics := c.GetCommonLbConfig().GetHealthyPanicThreshold(); panics == nil || panics.GetValue() != 0 {
		t.Errorf("%s: panic threshold %v, want 0", c.GetName(), panics)
	}
}

func TestWorkerCluster(t *testing.T) {
	pool := Pool{Name: "large", Workers: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:8000"), netip.MustParseAddrPort("[fd00::1]:8001")}}
	for _, c := range []struct {
		name  string
		from  EDSSource
		check func(*testing.T, *cluster.Cluster)
	}{
		{"endpoints over the stream that everything comes over", FromADS, func(t *testing.T, c *cluster.Cluster) {
			if c.GetType() != cluster.Cluster_EDS || c.GetEdsClusterConfig().GetEdsConfig().GetAds() == nil {
				t.Errorf("%s from %v", c.GetType(), c.GetEdsClusterConfig())
			}
		}},
		{"endpoints over a delta stream of their own", FromXDS, func(t *testing.T, c *cluster.Cluster) {
			api := c.GetEdsClusterConfig().GetEdsConfig().GetApiConfigSource()
			if c.GetType() != cluster.Cluster_EDS || api.GetApiType() != core.ApiConfigSource_DELTA_GRPC ||
				len(api.GetGrpcServices()) != 1 || api.GetGrpcServices()[0].GetEnvoyGrpc().GetClusterName() != XDSCluster {
				t.Errorf("%s from %v", c.GetType(), c.GetEdsClusterConfig())
			}
		}},
		{"endpoints in the configuration", FromStatic, func(t *testing.T, c *cluster.Cluster) {
			if got, want := hosts(c), "10.0.0.1 8000, fd00::1 8001"; c.GetType() != cluster.Cluster_STATIC || got != want {
				t.Errorf("%s with %s, want %s", c.GetType(), got, want)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			steered, baseline := WorkerCluster(pool, c.from), BaselineWorkers(pool, c.from)
			checkSteered(t, steered)
			if baseline.GetLoadBalancingPolicy() != nil || baseline.GetLbPolicy() != cluster.Cluster_ROUND_ROBIN {
				t.Errorf("baseline: %s, %v; want round robin", baseline.GetLbPolicy(), baseline.GetLoadBalancingPolicy())
			}
			for name, w := range map[string]*cluster.Cluster{"attache_workers.large": steered, BaselineCluster: baseline} {
				c.check(t, w)
				checkRoomy(t, w)
				if w.GetName() != name {
					t.Errorf("it is called %q, want %q", w.GetName(), name)
				}
				if !w.GetIgnoreHealthOnHostRemoval() || !w.GetTrackClusterStats().GetPerEndpointStats() {
					t.Errorf("%s: workers do not leave at once, or are not counted one by one", name)
				}
				if w.GetType() != cluster.Cluster_EDS {
					continue
				}
				if got := w.GetEdsClusterConfig().GetServiceName(); got != name {
					t.Errorf("%s asks for the endpoints of %q", name, got)
				}
				// Envoy's default of 15 s is how long a cluster would stand still after a change.
				if wait := w.GetEdsClusterConfig().GetEdsConfig().GetInitialFetchTimeout().AsDuration(); wait <= 0 || wait > time.Second {
					t.Errorf("%s waits %s for endpoints", name, wait)
				}
			}
		})
	}
}

// checkSteered wants the decision's list to come first, from metadata only: a header source could be forged by clients,
// and with both the list would be walked twice.
func checkSteered(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	first := c.GetLoadBalancingPolicy().GetPolicies()
	if len(first) != 1 || first[0].GetTypedExtensionConfig().GetName() != "envoy.load_balancing_policies.override_host" {
		t.Fatalf("policies %v, want override_host alone", first)
	}
	p := unpack(t, first[0].GetTypedExtensionConfig().GetTypedConfig(), &override.OverrideHost{})
	key := func(k string) *metadata.MetadataKey {
		return &metadata.MetadataKey{Key: SteerNamespace, Path: []*metadata.MetadataKey_PathSegment{
			{Segment: &metadata.MetadataKey_PathSegment_Key{Key: k}}}}
	}
	sources := p.GetOverrideHostSources()
	if len(sources) != 1 || sources[0].GetHeader() != "" || !proto.Equal(sources[0].GetMetadata(), key(DestinationKey)) {
		t.Errorf("the list is read from %v, want %v", sources, key(DestinationKey))
	}
	if !proto.Equal(p.GetSelectedHostKey(), key(ServedKey)) {
		t.Errorf("who served is told in %v, want %v", p.GetSelectedHostKey(), key(ServedKey))
	}
	fallback := p.GetFallbackPolicy().GetPolicies()
	if len(fallback) != 1 || fallback[0].GetTypedExtensionConfig().GetName() != "envoy.load_balancing_policies.maglev" {
		t.Errorf("fallback %v, want maglev", fallback)
	}
}

func TestRoutes(t *testing.T) {
	rs := func(pools ...string) []*route.Route {
		p := with(func(p *Params) { p.Pools, p.IdleTimeout, p.BodyLimit = nil, 7*time.Minute, 5<<20 })
		for _, name := range pools {
			p.Pools = append(p.Pools, Pool{Name: name})
		}
		return Routes(p).GetVirtualHosts()[0].GetRoutes()
	}
	one, two := rs("default"), rs("default", "large")

	t.Run("one pool needs no choice", func(t *testing.T) {
		if len(one) != 1 || one[0].GetRoute().GetCluster() != WorkersCluster || len(one[0].GetMatch().GetHeaders()) != 0 {
			t.Errorf("%v", one)
		}
	})
	t.Run("of several pools the decision's is taken, without one the first", func(t *testing.T) {
		if len(two) != 2 {
			t.Fatalf("%d routes, want 2", len(two))
		}
		// A route for everything in front would hide the other one.
		match := two[0].GetMatch().GetHeaders()
		if len(match) != 1 || match[0].GetName() != PoolHeader || !match[0].GetPresentMatch() ||
			two[0].GetRoute().GetClusterHeader() != PoolHeader {
			t.Errorf("first route: %v", two[0])
		}
		if len(two[1].GetMatch().GetHeaders()) != 0 || two[1].GetRoute().GetCluster() != WorkersCluster {
			t.Errorf("second route: %v", two[1])
		}
	})
	for i, r := range append(one, two...) {
		t.Run(fmt.Sprintf("route %d repeats on another worker, and not what a prompt itself breaks", i), func(t *testing.T) {
			retry := r.GetRoute().GetRetryPolicy()
			on := strings.Split(retry.GetRetryOn(), ",")
			for _, want := range []string{"connect-failure", "refused-stream", "reset", "retriable-status-codes"} {
				if !slices.Contains(on, want) {
					t.Errorf("nothing is repeated on %s: %s", want, on)
				}
			}
			if slices.Contains(on, "5xx") || !slices.Equal(retry.GetRetriableStatusCodes(), []uint32{503}) {
				t.Errorf("repeated on %s and %d; a 500 of an engine must not be, a 503 must", on, retry.GetRetriableStatusCodes())
			}
			not, choices := retry.GetRetryHostPredicate(), retry.GetHostSelectionRetryMaxAttempts()
			if len(not) != 1 || not[0].GetName() != "envoy.retry_host_predicates.previous_hosts" || choices < 2 {
				t.Errorf("hosts that failed may be chosen again: %v, %d choices", not, choices)
			}
			// First choice, second choice, one of the fallback policy's.
			if n := retry.GetNumRetries().GetValue(); n != 2 {
				t.Errorf("%d retries, want 2", n)
			}
		})
		t.Run(fmt.Sprintf("route %d bounds idleness and size, not length", i), func(t *testing.T) {
			a := r.GetRoute()
			// Absent means 15 s, which would cut off long answers.
			if a.GetTimeout() == nil || a.GetTimeout().AsDuration() != 0 || a.GetIdleTimeout().AsDuration() != 7*time.Minute {
				t.Errorf("timeout %v, idle %v; want 0 and 7m", a.GetTimeout(), a.GetIdleTimeout())
			}
			if n := r.GetRequestBodyBufferLimit().GetValue(); n != 5<<20 {
				t.Errorf("bodies up to %d bytes, want %d", n, 5<<20)
			}
		})
		t.Run(fmt.Sprintf("route %d keeps sessions together while attache is away", i), func(t *testing.T) {
			by := r.GetRoute().GetHashPolicy()
			if len(by) != 2 || by[0].GetHeader().GetHeaderName() != SessionHeader || !by[0].GetTerminal() ||
				!by[1].GetConnectionProperties().GetSourceIp() {
				t.Errorf("hashed by %v; want the session, and only without one the source address", by)
			}
		})
	}
}

func TestAssignment(t *testing.T) {
	const name = "attache_workers"
	addr := netip.MustParseAddrPort
	for _, c := range []struct {
		name  string
		hosts []Host
		want  []string // address, port, health, worker
	}{
		{"hosts keep their order, names and health", []Host{
			{addr("10.0.0.2:8000"), "w2", core.HealthStatus_HEALTHY},
			{addr("10.0.0.1:8001"), "w1", core.HealthStatus_DRAINING},
			{addr("10.0.0.3:8000"), "w3", core.HealthStatus_UNHEALTHY},
		}, []string{"10.0.0.2 8000 HEALTHY w2", "10.0.0.1 8001 DRAINING w1", "10.0.0.3 8000 UNHEALTHY w3"}},
		{"Envoy takes IPv6 without brackets",
			[]Host{{addr("[fd00::1]:8000"), "w", core.HealthStatus_HEALTHY}}, []string{"fd00::1 8000 HEALTHY w"}},
		{"a host without a name", []Host{{Addr: addr("10.0.0.1:8000")}}, []string{"10.0.0.1 8000 UNKNOWN "}},
		{"a pool without hosts", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			cla := Assignment(name, c.hosts)
			if cla.GetClusterName() != name {
				t.Errorf("for %q, want %q", cla.GetClusterName(), name)
			}
			var got []string
			for _, locality := range cla.GetEndpoints() {
				for _, e := range locality.GetLbEndpoints() {
					s := e.GetEndpoint().GetAddress().GetSocketAddress()
					worker := e.GetMetadata().GetFilterMetadata()[SteerNamespace].GetFields()["worker"].GetStringValue()
					got = append(got, fmt.Sprintf("%s %d %s %s", s.GetAddress(), s.GetPortValue(), e.GetHealthStatus(), worker))
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("\n got %q\nwant %q", got, c.want)
			}
			// Access logs print metadata that is there, so that a host without a name has none.
			for i, h := range c.hosts {
				if e := cla.GetEndpoints()[0].GetLbEndpoints()[i]; (h.Name == "") != (e.GetMetadata() == nil) {
					t.Errorf("host %d is called %q and has metadata %v", i, h.Name, e.GetMetadata())
				}
			}
		})
	}
	if n := len(Assignment(name, nil).GetEndpoints()); n != 0 {
		t.Errorf("a pool without hosts has %d localities, want 0", n)
	}
}

// Names are resolved by Envoy; addresses need no resolver, and pipes have none.
func TestReachingAttache(t *testing.T) {
	for _, c := range []struct {
		name      string
		addresses []string
		discovery cluster.Cluster_DiscoveryType
		want      string
	}{
		{"an address", []string{"10.0.0.9:9002"}, cluster.Cluster_STATIC, "10.0.0.9 9002"},
		{"an IPv6 address", []string{"[fd00::9]:9002"}, cluster.Cluster_STATIC, "fd00::9 9002"},
		{"a Unix socket is a pipe", []string{"unix:///run/attache/extproc.sock"}, cluster.Cluster_STATIC, "pipe /run/attache/extproc.sock"},
		{"every replica is an endpoint", []string{"10.0.0.8:9002", "10.0.0.9:9003"}, cluster.Cluster_STATIC, "10.0.0.8 9002, 10.0.0.9 9003"},
		{"a name", []string{"attache:9002"}, cluster.Cluster_STRICT_DNS, "attache 9002"},
		{"one name among addresses is enough", []string{"10.0.0.8:9002", "attache-1:9002"}, cluster.Cluster_STRICT_DNS,
			"10.0.0.8 9002, attache-1 9002"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := attacheCluster(with(func(p *Params) { p.ExtProc = c.addresses }))
			if got.GetName() != AttacheCluster || got.GetType() != c.discovery || hosts(got) != c.want {
				t.Errorf("%s is %s at %s; want %s at %s", got.GetName(), got.GetType(), hosts(got), c.discovery, c.want)
			}
		})
	}
}

// Without any one of these a dead or hung replica keeps attracting requests.
func TestDeadReplicasAreLeft(t *testing.T) {
	c := attacheCluster(with(func(p *Params) { p.HealthInterval = 250 * time.Millisecond }))
	checkRoomy(t, c)
	o := c.GetOutlierDetection()
	if o.GetConsecutiveGatewayFailure().GetValue() == 0 || o.GetEnforcingConsecutiveGatewayFailure().GetValue() != 100 ||
		o.GetMaxEjectionPercent().GetValue() != 100 {
		t.Errorf("outlier detection %v; Envoy's default counts gateway failures and does nothing", o)
	}
	if len(c.GetHealthChecks()) != 1 {
		t.Fatalf("%d health checks, want 1", len(c.GetHealthChecks()))
	}
	h := c.GetHealthChecks()[0]
	if got := h.GetGrpcHealthCheck().GetServiceName(); got != ExtProcService {
		t.Errorf("it checks %q, want %q", got, ExtProcService)
	}
	// A check must end before the next begins. Without traffic Envoy would check once a minute.
	for what, d := range map[string]time.Duration{
		"interval": h.GetInterval().AsDuration(), "interval without traffic": h.GetNoTrafficInterval().AsDuration(),
		"timeout": h.GetTimeout().AsDuration(),
	} {
		if d != 250*time.Millisecond {
			t.Errorf("%s %s, want 250ms", what, d)
		}
	}
}

// What clients must not say themselves is removed before anything reads it. Who they are is theirs to say as long as
// nobody checks.
func TestForgeriesAreRemoved(t *testing.T) {
	steering := []string{PoolHeader, DestinationHeader, ServedHeader}
	for _, c := range []struct {
		name   string
		params Params
		want   []string
	}{
		{"where nobody is checked", with(), steering},
		{"where keys are checked", with(keys), append(slices.Clone(steering), ClientHeader)},
		{"where tokens are checked", with(tokens), append(slices.Clone(steering), ClientHeader)},
	} {
		t.Run(c.name, func(t *testing.T) {
			extensions := manager(t, Listener(c.params, false)).GetEarlyHeaderMutationExtensions()
			if len(extensions) != 1 {
				t.Fatalf("%d extensions, want 1", len(extensions))
			}
			var got []string
			for _, m := range unpack(t, extensions[0].GetTypedConfig(), &early.HeaderMutation{}).GetMutations() {
				got = append(got, m.GetRemove())
			}
			if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(c.want))) {
				t.Errorf("removed\n got %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestGuards(t *testing.T) {
	t.Run("keys tell who the client is and go no further", func(t *testing.T) {
		auth := config(t, httpFilters(with(keys)), "api_key_auth", &apikey.ApiKeyAuth{})
		if f := auth.GetForwarding(); f.GetHeader() != ClientHeader || !f.GetHideCredentials() {
			t.Errorf("forwarded: %v", f)
		}
		if from := auth.GetKeySources(); len(from) != 1 || from[0].GetHeader() != "authorization" {
			t.Errorf("read from %v", from)
		}
	})
	t.Run("tokens are checked on every path and tell who the client is", func(t *testing.T) {
		auth := config(t, httpFilters(with(tokens)), "jwt_authn", &jwt.JwtAuthentication{})
		if len(auth.GetRules()) != 1 || auth.GetRules()[0].GetMatch().GetPrefix() != "/" {
			t.Fatalf("rules %v, want one for /", auth.GetRules())
		}
		p := auth.GetProviders()[auth.GetRules()[0].GetRequires().GetProviderName()]
		if p.GetIssuer() != "https://issuer.example" || p.GetLocalJwks().GetInlineString() != `{"keys":[]}` {
			t.Errorf("the rule's provider: %v", p)
		}
		if to := p.GetClaimToHeaders(); len(to) != 1 || to[0].GetHeaderName() != ClientHeader || to[0].GetClaimName() != "azp" {
			t.Errorf("claims go to %v", to)
		}
	})
	t.Run("one configuration gives one text, or Envoy would see a change at every restart", func(t *testing.T) {
		many := with(keys, limits)
		many.Security.RateLimit.Clients = map[string]uint32{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}
		first, err := Render(ModeStatic, many)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if again, _ := Render(ModeStatic, many); again != first {
				t.Fatal("two renders differ")
			}
		}
	})
	t.Run("every client has a bucket of its own, some a larger one", func(t *testing.T) {
		limit := config(t, httpFilters(with(keys, limits)), "local_ratelimit", &locallimit.LocalRateLimit{})
		got := map[string]uint32{}
		for _, d := range limit.GetDescriptors() {
			b := d.GetTokenBucket()
			if len(d.GetEntries()) != 1 || d.GetEntries()[0].GetKey() != "client" || b.GetTokensPerFill().GetValue() != b.GetMaxTokens() ||
				b.GetFillInterval().AsDuration() != time.Minute {
				t.Fatalf("descriptor %v", d)
			}
			got[d.GetEntries()[0].GetValue()] = b.GetMaxTokens()
		}
		if len(got) != 2 || got["alice"] != 600 || got[""] != 60 {
			t.Errorf("requests per minute %v; want 600 for alice, 60 for others", got)
		}
		by := limit.GetRateLimits()[0].GetActions()[0].GetRequestHeaders()
		if by.GetHeaderName() != ClientHeader || by.GetDescriptorKey() != "client" {
			t.Errorf("clients are told apart by %v", by)
		}
		// Else all clients together would empty the bucket that they share.
		if shared := limit.GetAlwaysConsumeDefaultTokenBucket(); shared == nil || shared.GetValue() {
			t.Errorf("all clients draw on one bucket: %v", shared)
		}
		// Both default to 0 %: the filter would watch and do nothing.
		on, enforced := limit.GetFilterEnabled().GetDefaultValue(), limit.GetFilterEnforced().GetDefaultValue()
		if on.GetNumerator() != 100 || enforced.GetNumerator() != 100 {
			t.Errorf("enabled for %v, enforced for %v; want 100 %%", on, enforced)
		}
	})
	t.Run("bodies have a hard bound", func(t *testing.T) {
		limit := config(t, httpFilters(with(limits)), "body_size_limit", &bodylimit.BodySizeLimit{})
		if got := limit.GetMaxRequestBytes().GetValue(); got != 1<<20 {
			t.Errorf("%d bytes, want %d", got, 1<<20)
		}
	})
}

// A key is written where Envoy compares it, once, and nowhere else; where Envoy fetches its listener, not at all.
func TestSecretsStayWhereTheyAreNeeded(t *testing.T) {
	p := with(keys, limits)
	var held []Key
	for _, c := range config(t, httpFilters(p), "api_key_auth", &apikey.ApiKeyAuth{}).GetCredentials() {
		held = append(held, Key{Client: c.GetClient(), Secret: c.GetKey()})
	}
	if !slices.Equal(held, p.Security.Keys) {
		t.Errorf("api_key_auth compares with %v, want %v", held, p.Security.Keys)
	}
	for mode, want := range map[Mode]int{ModeADS: 0, ModeAttach: 1, ModeStatic: 1} {
		text, err := Render(mode, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range p.Security.Keys {
			if got := strings.Count(text, k.Secret); got != want {
				t.Errorf("mode %s: the key of %s is printed %d times, want %d", mode, k.Client, got, want)
			}
		}
	}
	// The credentials of requests do not reach attache either, where Envoy does not check them itself.
	hidden := map[string]bool{}
	f := unpack(t, ExtProc(with()).GetTypedConfig(), &extproc.ExternalProcessor{})
	for _, h := range f.GetForwardRules().GetDisallowedHeaders().GetPatterns() {
		hidden[h.GetExact()] = h.GetIgnoreCase()
	}
	for _, name := range []string{"authorization", "cookie", "x-api-key"} {
		if !hidden[name] {
			t.Errorf("attache sees the header %s", name)
		}
	}
}

// The baseline is what attache is compared with: the same route but for its cluster, decided without attache.
func TestBaselineAsksNobody(t *testing.T) {
	m := manager(t, Baseline(with(func(p *Params) { p.Baseline = "127.0.0.1:8081" })))
	for _, f := range m.GetHttpFilters() {
		if f.GetName() == ExtProcFilter {
			t.Errorf("attache is asked: %s", order(m.GetHttpFilters()))
		}
	}
	if len(m.GetAccessLog()) != 0 {
		t.Errorf("attache is told: %v", m.GetAccessLog())
	}
	r := m.GetRouteConfig().GetVirtualHosts()[0].GetRoutes()
	want := Routes(with()).GetVirtualHosts()[0].GetRoutes()
	if len(r) != 1 || r[0].GetRoute().GetCluster() != BaselineCluster {
		t.Fatalf("routes %v", r)
	}
	want[0].GetRoute().ClusterSpecifier = r[0].GetRoute().GetClusterSpecifier()
	if !proto.Equal(r[0], want[0]) {
		t.Errorf("the route differs by more than its cluster:\nbaseline %v\n gateway %v", r[0], want[0])
	}
}
