package xds

import (
	"net/netip"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"

	"attache/envoy"
	"attache/internal/worker"
)

// fixed are the resources that do not depend on who serves: they differ by Envoy's version only.
type fixed struct {
	listeners, routes, clusters map[string]types.Resource
}

// fixedResources builds listeners, routes and clusters for one version of Envoy.
func fixedResources(p envoy.Params, v envoy.Version) fixed {
	p.Version = v
	f := fixed{
		listeners: map[string]types.Resource{envoy.ListenerName: envoy.Listener(p, true)},
		routes:    map[string]types.Resource{envoy.RouteName: envoy.Routes(p)},
		clusters:  map[string]types.Resource{},
	}
	for _, pool := range p.Pools {
		f.clusters[envoy.PoolCluster(pool.Name)] = envoy.WorkerCluster(pool, envoy.FromADS)
	}
	if p.Baseline != "" {
		f.listeners[envoy.BaselineListenerName] = envoy.Baseline(p)
		f.clusters[envoy.BaselineCluster] = envoy.BaselineWorkers(p.Pools[0], envoy.FromADS)
	}
	return f
}

// assignments are the endpoints of every pool, by cluster.
func assignments(p envoy.Params, set *worker.Set) map[string]*endpoint.ClusterLoadAssignment {
	all := map[string]*endpoint.ClusterLoadAssignment{}
	for i, pool := range p.Pools {
		var hosts []envoy.Host
		for _, w := range set.Pool(pool.Name) {
			hosts = append(hosts, envoy.Host{Addr: w.Addr, Name: w.Name, Health: health(w.State)})
		}
		name := envoy.PoolCluster(pool.Name)
		all[name] = envoy.Assignment(name, hosts)
		if i == 0 && p.Baseline != "" {
			all[envoy.BaselineCluster] = envoy.Assignment(envoy.BaselineCluster, hosts)
		}
	}
	return all
}

// health is what Envoy's fallback policy goes by; decisions name only eligible workers, whatever Envoy thinks of them.
// A syncing worker is announced as healthy: its announcement is what is being acknowledged.
func health(s worker.State) core.HealthStatus {
	switch s {
	case worker.Ready, worker.Syncing:
		return core.HealthStatus_HEALTHY
	case worker.Draining:
		return core.HealthStatus_DRAINING
	default:
		return core.HealthStatus_UNHEALTHY
	}
}

// addresses are the endpoints of an assignment.
func addresses(cla *endpoint.ClusterLoadAssignment) map[netip.AddrPort]struct{} {
	found := map[netip.AddrPort]struct{}{}
	for _, locality := range cla.GetEndpoints() {
		for _, e := range locality.GetLbEndpoints() {
			s := e.GetEndpoint().GetAddress().GetSocketAddress()
			if ip, err := netip.ParseAddr(s.GetAddress()); err == nil {
				found[netip.AddrPortFrom(ip, uint16(s.GetPortValue()))] = struct{}{}
			}
		}
	}
	return found
}
