// Package xds is what Envoy knows: the control plane that serves listeners, routes, clusters and, above all, the pools'
// endpoints over delta xDS.
//
// Listeners, routes and clusters follow from the configuration and are the same for every Envoy of one version; only
// endpoints change while attache runs. A change of the worker set becomes a change of the affected pools' endpoints,
// pushed to every Envoy that subscribed. What Envoy acknowledges goes back to the registry: a new worker may be chosen
// once every connected Envoy knows its address, because a decision that names an unknown one would be ignored.
package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"

	"attache/envoy"
	"attache/internal/field"
	"attache/internal/worker"
)

// Registry publishes who serves, and is told what Envoy knows of it.
type Registry interface {
	// Observe calls back with the current set and with every one that follows.
	Observe(func(*worker.Set))
	// UseGate says whether workers must be acknowledged before they are chosen.
	UseGate(on bool)
	// Acknowledged says which addresses every connected Envoy knows.
	Acknowledged(addrs map[netip.AddrPort]struct{})
}

// Server is the control plane.
type Server struct {
	params   envoy.Params
	registry Registry
	log      *slog.Logger
	metrics  *metrics
	streams  *streams
	caches   caches
	grpc     *grpc.Server
	listener net.Listener
	latest   chan *worker.Set
	pushed   map[string]*endpoint.ClusterLoadAssignment // by cluster; only Run touches it
}

// Params are the collaborators of a Server.
type Params struct {
	Config   Config
	Pools    []string // names; the first is the default
	Registry Registry
	Log      *slog.Logger
	Metrics  prometheus.Registerer
	Now      func() time.Time
	// AnswerHeaders: attache adds headers to answers.
	AnswerHeaders bool
	// AnswerBodies: attache may ask for the bodies of single answers.
	AnswerBodies bool
}

// New builds the resources and opens the listener; Run serves it. The configuration must have been validated.
func New(p Params) (*Server, error) {
	var pools []envoy.Pool
	for _, name := range p.Pools {
		pools = append(pools, envoy.Pool{Name: name})
	}
	params, err := GatewayParams(p.Config.Gateway, Reach{AnswerHeaders: p.AnswerHeaders, AnswerBodies: p.AnswerBodies}, pools)
	if err != nil {
		return nil, err
	}
	s := &Server{
		params: params, registry: p.Registry, log: p.Log, metrics: newMetrics(p.Metrics),
		latest: make(chan *worker.Set, 1), pushed: map[string]*endpoint.ClusterLoadAssignment{},
	}
	s.streams = newStreams(p.Now, p.Log, s.metrics, p.Registry)
	s.caches = newCaches(params)
	s.grpc = grpc.NewServer(
		grpc.MaxConcurrentStreams(1<<20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}))
	if s.listener, err = field.Listen(p.Config.Listen); err != nil {
		return nil, fmt.Errorf("xds.listen: %w", err)
	}
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Register adds the discovery services: everything over one stream (ADS), and endpoints over a stream of their own.
func (s *Server) Register(ctx context.Context, to grpc.ServiceRegistrar) {
	srv := server.NewServer(ctx, &s.caches, s.streams)
	discovery.RegisterAggregatedDiscoveryServiceServer(to, srv)
	endpointservice.RegisterEndpointDiscoveryServiceServer(to, srv)
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	s.Register(ctx, s.grpc)
	s.registry.Observe(s.offer)
	failed := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() { failed <- s.grpc.Serve(s.listener) })
	defer serving.Wait()
	defer s.grpc.Stop()
	// One of three things happens at a time: a new set is pushed, the server fails, or everything ends.
	for {
		select {
		case set := <-s.latest:
			if err := s.push(set); err != nil {
				s.log.Error("endpoints could not be pushed", "error", err)
			}
		case err := <-failed:
			return fmt.Errorf("xds: %w", err)
		case <-ctx.Done():
			return nil
		}
	}
}

// offer leaves the newest set for Run; one that Run did not get to is replaced, so that bursts cost one push.
func (s *Server) offer(set *worker.Set) {
	for {
		select {
		case s.latest <- set:
			return
		default:
		}
		select {
		case <-s.latest:
		default:
		}
	}
}

// push sends the endpoints that changed.
func (s *Server) push(set *worker.Set) error {
	changed := map[string]types.Resource{}
	for name, cla := range assignments(s.params, set) {
		if before := s.pushed[name]; before == nil || !proto.Equal(before, cla) {
			changed[name], s.pushed[name] = cla, cla
		}
	}
	if len(changed) == 0 {
		return nil
	}
	s.metrics.pushes.Inc()
	return s.caches.endpoints.UpdateResources(changed, nil)
}

// Status says who is connected.
func (s *Server) Status() Status { return s.streams.status() }

// caches picks, for every subscription, the resources of the subscriber's version. Endpoints are the same for all.
type caches struct {
	endpoints *cache.LinearCache
	versions  map[envoy.Version]map[string]*cache.LinearCache // by type URL
	empty     map[string]*cache.LinearCache                   // types that are asked for and have nothing here
}

func newCaches(p envoy.Params) caches {
	c := caches{endpoints: cache.NewLinearCache(resource.EndpointType), versions: map[envoy.Version]map[string]*cache.LinearCache{},
		empty: map[string]*cache.LinearCache{}}
	for v := envoy.Oldest; v <= envoy.Newest; v++ {
		f := fixedResources(p, v)
		c.versions[v] = map[string]*cache.LinearCache{}
		for url, resources := range map[string]map[string]types.Resource{
			resource.ListenerType: f.listeners, resource.RouteType: f.routes, resource.ClusterType: f.clusters,
		} {
			c.versions[v][url] = cache.NewLinearCache(url, cache.WithInitialResources(resources))
		}
	}
	// A type without a cache would end the stream.
	for _, url := range []string{resource.SecretType, resource.RuntimeType, resource.ExtensionConfigType, resource.ScopedRouteType,
		resource.VirtualHostType, resource.ThriftRouteType, resource.RateLimitConfigType} {
		c.empty[url] = cache.NewLinearCache(url)
	}
	return c
}

func (c *caches) of(url string, node *core.Node) (cache.Cache, error) {
	if url == resource.EndpointType {
		return c.endpoints, nil
	}
	if byType := c.versions[versionOf(node)][url]; byType != nil {
		return byType, nil
	}
	if e := c.empty[url]; e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("attache serves no resources of type %s", url)
}

// versionOf is the version whose features a node has. An Envoy that does not say gets what all understand.
func versionOf(node *core.Node) envoy.Version {
	v := envoy.Version(node.GetUserAgentBuildVersion().GetVersion().GetMinorNumber())
	return min(max(v, envoy.Oldest), envoy.Newest)
}

// CreateWatch implements cache.Cache.
func (c *caches) CreateWatch(r *cache.Request, sub cache.Subscription, out chan cache.Response) (func(), error) {
	to, err := c.of(r.GetTypeUrl(), r.GetNode())
	if err != nil {
		return nil, err
	}
	return to.CreateWatch(r, sub, out)
}

// CreateDeltaWatch implements cache.Cache.
func (c *caches) CreateDeltaWatch(r *cache.DeltaRequest, sub cache.Subscription, out chan cache.DeltaResponse) (func(), error) {
	to, err := c.of(r.GetTypeUrl(), r.GetNode())
	if err != nil {
		return nil, err
	}
	return to.CreateDeltaWatch(r, sub, out)
}

// Fetch implements cache.Cache; nobody polls.
func (c *caches) Fetch(context.Context, *cache.Request) (cache.Response, error) {
	return nil, errors.New("attache serves xDS by streams only")
}
