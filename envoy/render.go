package envoy

import (
	"fmt"
	"strings"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/encoding/protojson"
)

// Mode is how an Envoy gets its configuration.
type Mode string

// The modes.
const (
	ModeADS    Mode = "ads"    // everything from attache over one stream
	ModeAttach Mode = "attach" // listener and routes are the user's, endpoints come from attache
	ModeStatic Mode = "static" // nothing comes from attache but decisions
)

var heads = map[Mode]string{
	ModeADS: `# Envoy run wholly by attache: listeners, routes, clusters and endpoints come over one delta xDS stream.
# The two clusters that reach attache are static on purpose: changing them would break running requests.
`,
	ModeAttach: `# attache on a listener of yours. A complete configuration that runs as it is; from it, take into your own:
#   - the HTTP filters from envoy.filters.http.ext_proc on, behind your authentication and rate limits, before the router
#   - early_header_mutation_extensions and access_log of the connection manager, and its stream_idle_timeout
#   - the route's fields: cluster, timeouts, hash_policy, retry_policy, request_body_buffer_limit
#   - the clusters attache, attache_xds and attache_workers
# Endpoints come over a stream of their own, so that workers come and go without touching this file.
`,
	ModeStatic: `# attache on a listener of yours, without xDS. A complete configuration that runs as it is; from it, take into your own:
#   - the HTTP filters from envoy.filters.http.ext_proc on, behind your authentication and rate limits, before the router
#   - early_header_mutation_extensions and access_log of the connection manager, and its stream_idle_timeout
#   - the route's fields: cluster, timeouts, hash_policy, retry_policy, request_body_buffer_limit
#   - the clusters attache and attache_workers; the latter lists the same workers that attache is given
`,
}

// Render prints a configuration that Envoy takes as it is.
func Render(mode Mode, p Params) (string, error) {
	head, ok := heads[mode]
	if !ok {
		return "", fmt.Errorf("%q: must be ads, attach or static", mode)
	}
	b := &bootstrap.Bootstrap{
		Node:            &core.Node{Id: p.NodeID, Cluster: "attache"},
		Admin:           &bootstrap.Admin{Address: socket(p.Admin)},
		StaticResources: &bootstrap.Bootstrap_StaticResources{Clusters: []*cluster.Cluster{attacheCluster(p)}},
	}
	static := b.GetStaticResources()
	if mode != ModeStatic {
		static.Clusters = append(static.Clusters, reach(XDSCluster, p.XDS...))
	}
	if mode == ModeADS {
		ads := &core.ConfigSource{ResourceApiVersion: core.ApiVersion_V3, ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}}}
		b.DynamicResources = &bootstrap.Bootstrap_DynamicResources{AdsConfig: deltaSource(), LdsConfig: ads, CdsConfig: ads}
	} else {
		from := FromXDS
		if mode == ModeStatic {
			from = FromStatic
		}
		static.Listeners = []*listener.Listener{Listener(p, false)}
		for _, pool := range p.Pools {
			static.Clusters = append(static.Clusters, WorkerCluster(pool, from))
		}
		if p.Baseline != "" {
			static.Listeners = append(static.Listeners, Baseline(p))
			static.Clusters = append(static.Clusters, BaselineWorkers(p.Pools[0], from))
		}
	}
	json, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(b)
	if err != nil {
		return "", err
	}
	text, err := yaml.JSONToYAML(json)
	if err != nil {
		return "", err
	}
	return head + "# Envoy " + p.Version.String() + " or newer; made by `attache envoy-config --mode " + string(mode) + "`.\n" +
		strings.TrimLeft(string(text), "\n"), nil
}
