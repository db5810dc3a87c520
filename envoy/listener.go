package envoy

import (
	"time"

	accesslog "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	previous "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Listener is the gateway. With viaRDS its routes come by the route discovery service, else they are part of it.
func Listener(p Params, viaRDS bool) *listener.Listener {
	manager := &hcm.HttpConnectionManager{
		StatPrefix: RouteName, StreamIdleTimeout: ms(p.IdleTimeout), HttpFilters: httpFilters(p),
		EarlyHeaderMutationExtensions: []*core.TypedExtensionConfig{forgeries(p)},
		AccessLog:                     []*accesslog.AccessLog{AccessLog()},
	}
	if viaRDS {
		manager.RouteSpecifier = &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{RouteConfigName: RouteName, ConfigSource: &core.ConfigSource{
			ResourceApiVersion: core.ApiVersion_V3, InitialFetchTimeout: ms(5 * time.Second),
			ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}}}}}
	} else {
		manager.RouteSpecifier = &hcm.HttpConnectionManager_RouteConfig{RouteConfig: Routes(p)}
	}
	return listen(ListenerName, p.Listen, manager)
}

// Baseline is a listener that routes by round robin and asks nobody.
func Baseline(p Params) *listener.Listener {
	return listen(BaselineListenerName, p.Baseline, &hcm.HttpConnectionManager{
		StatPrefix: BaselineListenerName, StreamIdleTimeout: ms(p.IdleTimeout),
		HttpFilters: []*hcm.HttpFilter{filter("envoy.filters.http.router", &router.Router{})},
		RouteSpecifier: &hcm.HttpConnectionManager_RouteConfig{RouteConfig: routes(BaselineListenerName, []*route.Route{
			all(p, &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: BaselineCluster}})})},
	})
}

func listen(name, address string, manager *hcm.HttpConnectionManager) *listener.Listener {
	return &listener.Listener{Name: name, Address: socket(address), FilterChains: []*listener.FilterChain{{Filters: []*listener.Filter{{
		Name: "envoy.filters.network.http_connection_manager", ConfigType: &listener.Filter_TypedConfig{TypedConfig: pack(manager)}}}}}}
}

// Routes lead to the default pool, or to the pool that the decision named.
func Routes(p Params) *route.RouteConfiguration {
	var rs []*route.Route
	if len(p.Pools) > 1 {
		named := all(p, &route.RouteAction{ClusterSpecifier: &route.RouteAction_ClusterHeader{ClusterHeader: PoolHeader}})
		named.Match.Headers = []*route.HeaderMatcher{{Name: PoolHeader, HeaderMatchSpecifier: &route.HeaderMatcher_PresentMatch{PresentMatch: true}}}
		rs = append(rs, named)
	}
	return routes(RouteName, append(rs, all(p, &route.RouteAction{
		ClusterSpecifier: &route.RouteAction_Cluster{Cluster: PoolCluster(p.Pools[0].Name)}})))
}

func routes(name string, rs []*route.Route) *route.RouteConfiguration {
	return &route.RouteConfiguration{Name: name, VirtualHosts: []*route.VirtualHost{{
		Name: name, Domains: []string{"*"}, IncludeRequestAttemptCount: true, Routes: rs}}}
}

// all is a route for every path. Answers are bound by idleness, not by length. What may be repeated is repeated on
// another worker: not an engine's own 500, which a poisonous prompt would carry on to the next.
func all(p Params, action *route.RouteAction) *route.Route {
	action.Timeout, action.IdleTimeout = ms(0), ms(p.IdleTimeout)
	action.HashPolicy = []*route.RouteAction_HashPolicy{
		{Terminal: true, PolicySpecifier: &route.RouteAction_HashPolicy_Header_{Header: &route.RouteAction_HashPolicy_Header{HeaderName: SessionHeader}}},
		{PolicySpecifier: &route.RouteAction_HashPolicy_ConnectionProperties_{
			ConnectionProperties: &route.RouteAction_HashPolicy_ConnectionProperties{SourceIp: true}}},
	}
	action.RetryPolicy = &route.RetryPolicy{
		RetryOn: "connect-failure,refused-stream,reset,retriable-status-codes", RetriableStatusCodes: []uint32{503}, NumRetries: u32(2),
		RetryBackOff: &route.RetryPolicy_RetryBackOff{BaseInterval: ms(10 * time.Millisecond)},
		RetryHostPredicate: []*route.RetryPolicy_RetryHostPredicate{{Name: "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &route.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: pack(&previous.PreviousHostsPredicate{})}}},
		HostSelectionRetryMaxAttempts: 5,
	}
	return &route.Route{
		Match:                  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}},
		Action:                 &route.Route_Route{Route: action},
		RequestBodyBufferLimit: wrapperspb.UInt64(uint64(p.BodyLimit)),
	}
}
