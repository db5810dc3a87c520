package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	slicesResource = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	podsResource   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// endpointSlice is what is read of a discovery.k8s.io/v1 EndpointSlice.
type endpointSlice struct {
	AddressType string `json:"addressType"`
	Endpoints   []struct {
		Addresses  []string `json:"addresses"`
		Conditions struct {
			Ready   *bool `json:"ready"`
			Serving *bool `json:"serving"`
		} `json:"conditions"`
		TargetRef struct {
			Kind      string `json:"kind"`
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"targetRef"`
		Zone string `json:"zone"`
	} `json:"endpoints"`
	Ports []struct {
		Name string `json:"name"`
		Port int    `json:"port"`
	} `json:"ports"`
}

// labelZone is the label under which the zone of an endpoint is shown, which is also that of nodes.
const labelZone = "topology.kubernetes.io/zone"

// service finds endpoints in EndpointSlices.
type service struct {
	d      *Discovery
	slices *table[endpointSlice]
	pods   *table[pod] // nil when their labels are not wanted
}

func newService(d *Discovery) *service {
	s := &service{d: d, slices: newTable[endpointSlice](d.poke)}
	if d.p.PodLabels {
		s.pods = newTable[pod](d.poke)
	}
	return s
}

// follow implements finder.
func (s *service) follow(ctx context.Context) {
	var running sync.WaitGroup
	selector := s.d.p.Selector
	if selector == "" {
		selector = "kubernetes.io/service-name=" + s.d.p.Service
	}
	running.Go(func() { s.slices.fill(ctx, s.d.watched(slicesResource, selector, "")) })
	if s.pods != nil {
		running.Go(func() { s.pods.fill(ctx, s.d.watched(podsResource, "", "")) })
	}
	running.Wait()
}

// endpoints implements finder. Pods that cannot be read cost their labels only.
func (s *service) endpoints() ([]endpoint, error) {
	all, ok := s.slices.all()
	if !ok {
		return nil, errNotYet
	}
	if s.pods != nil {
		if _, ok := s.pods.all(); !ok && !s.d.fails(podsResource) {
			return nil, errNotYet
		}
	}
	var list []endpoint
	dual := map[string]bool{} // pods that have an IPv4 address
	for _, family := range []string{"IPv4", "IPv6"} {
		for _, slice := range all {
			if slice.AddressType != family || len(slice.Endpoints) == 0 {
				continue
			}
			ports, err := s.ports(&slice)
			if err != nil {
				return nil, err
			}
			for i := range slice.Endpoints {
				e, err := s.endpoint(&slice, i)
				if err != nil {
					return nil, err
				}
				if e.pod != "" && family == "IPv6" && dual[e.pod] {
					continue // the same engine
				}
				dual[e.pod] = true
				e.ports = ports
				list = append(list, e)
			}
		}
	}
	return list, nil
}

func (s *service) endpoint(slice *endpointSlice, i int) (e endpoint, err error) {
	said := &slice.Endpoints[i]
	if len(said.Addresses) == 0 {
		return e, fmt.Errorf("an EndpointSlice: endpoints[%d].addresses: must not be empty", i)
	}
	if e.addr, err = address(said.Addresses[0]); err != nil { // further ones have no meaning
		return e, fmt.Errorf("an EndpointSlice: endpoints[%d].addresses[0]: %w", i, err)
	}
	isReady := said.Conditions.Ready == nil || *said.Conditions.Ready
	e.state = stateOf(isReady, said.Conditions.Serving != nil && *said.Conditions.Serving)
	e.labels = map[string]string{}
	if said.Zone != "" {
		e.labels[labelZone] = said.Zone
	}
	if said.TargetRef.Kind == "Pod" {
		e.pod = said.TargetRef.Namespace + "/" + said.TargetRef.Name
		if s.pods != nil {
			p, _ := s.pods.get(e.pod)
			for key, value := range p.Metadata.Labels {
				e.labels[key] = value
			}
		}
	}
	return e, nil
}

// ports are those of a slice that are meant, in order. A slice may have none of them: the ports of a service may be in different ones.
func (s *service) ports(slice *endpointSlice) (ports []uint16, err error) {
	c := &s.d.p.Config
	if c.Port != 0 {
		return []uint16{uint16(c.Port)}, nil
	}
	beginning, several := strings.CutSuffix(c.PortName, "*")
	var names []string
	for _, p := range slice.Ports {
		meant := c.PortName == "" || p.Name == c.PortName || several && strings.HasPrefix(p.Name, beginning)
		if meant && p.Port > 0 && p.Port <= 65535 {
			ports = append(ports, uint16(p.Port))
			names = append(names, p.Name)
		}
	}
	if c.PortName == "" && len(ports) > 1 {
		return nil, fmt.Errorf("an EndpointSlice has the ports %s: say by port_name or port which one the engines serve at", strings.Join(names, ", "))
	}
	slices.Sort(ports)
	return slices.Compact(ports), nil
}
