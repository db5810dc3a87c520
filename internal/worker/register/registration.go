package register

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"attache/internal/worker"
)

// Registration is what a worker says of itself, as JSON.
type Registration struct {
	// Name is unique among all workers: letters, digits and "._:@-", at most 128.
	Name string `json:"name"`
	// Pool is where it serves. Empty: the only pool, or the one that has its models.
	Pool string `json:"pool,omitempty"`
	// Address is where gateways and Envoys reach its engine, host:port.
	Address string `json:"address"`
	// Engine is "vllm", "sglang", "trtllm" or "auto"; empty is auto.
	Engine worker.Engine `json:"engine,omitempty"`
	// Role is "prefill", "decode" or "" for both; it becomes the label of that name.
	Role string `json:"role,omitempty"`
	// Models are the names that its engine serves.
	Models   []string `json:"models,omitempty"`
	Capacity Capacity `json:"capacity,omitzero"`
	// Labels are marks that requests can ask for; Topology are those that say where it stands, such as zone or rack. They become
	// labels alike.
	Labels   map[string]string `json:"labels,omitempty"`
	Topology map[string]string `json:"topology,omitempty"`
	// Events is where it publishes its KV events, in place of what its pool says.
	Events Events `json:"events,omitzero"`
	// TTL is how many seconds it stays without a heartbeat; 0, or more than the gateway allows: as the gateway has it.
	TTL float64 `json:"ttl_s,omitempty"`
}

// Capacity is how much a worker takes; 0 is not known.
type Capacity struct {
	MaxInFlight    int `json:"max_in_flight,omitempty"`    // requests, before it counts as saturated
	Blocks         int `json:"kv_blocks,omitempty"`        // in the KV caches of all its ranks
	BlockTokens    int `json:"block_tokens,omitempty"`     // tokens per block
	MaxModelTokens int `json:"max_model_tokens,omitempty"` // of prompt and answer together
}

// Events is a worker.EventSource as JSON.
type Events struct {
	Off       bool   `json:"off,omitempty"`
	Endpoint  string `json:"endpoint,omitempty"`
	Replay    string `json:"replay,omitempty"`
	Topic     string `json:"topic,omitempty"`
	Ranks     int    `json:"ranks,omitempty"`
	FirstRank int    `json:"first_rank,omitempty"`
}

// Heartbeat renews a lease, as JSON.
type Heartbeat struct {
	Load Load `json:"load,omitzero"`
}

// Load is what an engine says of itself. It counts where the gateway cannot read the engine's metrics.
type Load struct {
	Running int     `json:"running"`
	Waiting int     `json:"waiting"`
	KVUsage float64 `json:"kv_usage"` // of the KV cache, 0 to 1
}

// Lease answers a registration and every heartbeat, as JSON.
type Lease struct {
	Worker string `json:"worker"`
	Pool   string `json:"pool"`
	// TTL is how many seconds the worker stays without a heartbeat, Heartbeat how many it should let pass between two.
	TTL       float64 `json:"ttl_s"`
	Heartbeat float64 `json:"heartbeat_s"`
	// InFlight is how many requests this gateway has sent to it that are not over.
	InFlight int `json:"in_flight"`
	// Draining says that it gets nothing new, because it will leave.
	Draining bool `json:"draining,omitempty"`
}

// Bounds of what a worker may say.
const (
	MaxBody     = 64 << 10 // bytes of JSON
	maxName     = 128
	maxText     = 256 // bytes of an address, a model's name, a label, an endpoint
	MaxModels   = 256
	maxLabels   = 64
	maxCount    = 1 << 40 // of blocks and tokens
	maxRanks    = 256
	maxInFlight = 1_000_000
)

// Parse reads a registration and checks it. The error says which member breaks which rule.
func Parse(text []byte) (*Registration, error) {
	var r Registration
	if err := decode(text, &r); err != nil {
		return nil, err
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	return &r, nil
}

// ParseHeartbeat reads a heartbeat and checks it; no text at all is one without figures.
func ParseHeartbeat(text []byte) (*Heartbeat, error) {
	var h Heartbeat
	if len(bytes.TrimSpace(text)) == 0 {
		return &h, nil
	}
	if err := decode(text, &h); err != nil {
		return nil, err
	}
	switch l := h.Load; {
	case l.Running < 0 || l.Running > maxInFlight:
		return nil, invalid("load.running", l.Running, "must be 0 to %d requests", maxInFlight)
	case l.Waiting < 0 || l.Waiting > maxInFlight:
		return nil, invalid("load.waiting", l.Waiting, "must be 0 to %d requests", maxInFlight)
	case l.KVUsage < 0 || l.KVUsage > 1:
		return nil, invalid("load.kv_usage", l.KVUsage, "must be 0 to 1")
	}
	return &h, nil
}

// decode reads one JSON object without members that are not known, and without anything after it.
func decode(text []byte, into any) error {
	if len(text) > MaxBody {
		return &RefusedError{Kind: TooLarge, Text: fmt.Sprintf("body: must be at most %d bytes", MaxBody)}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return invalidf("body: byte %d: %v", syntax.Offset, syntax)
	case errors.As(err, &kind):
		where := kind.Field
		if where == "" {
			where = "body"
		}
		return invalidf("%s: byte %d: must be of type %s, is %s", where, kind.Offset, jsonKind(kind.Type.Kind().String()), kind.Value)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return invalidf("body: must be one JSON object, and ends early")
	case err != nil: // an unknown member
		return invalidf("body: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return invalidf("body: byte %d: must be one JSON object, and goes on", d.InputOffset())
	}
	return nil
}

// jsonKind is JSON's word for Go's kind.
func jsonKind(kind string) string {
	switch kind {
	case "struct", "map":
		return "object"
	case "slice":
		return "array"
	case "bool":
		return "boolean"
	case "int":
		return "whole number"
	case "float64":
		return "number"
	}
	return kind
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9._:@-]+$`)

// Check reports the first member that breaks its rule, as a *RefusedError.
func (r *Registration) Check() error {
	if len(r.Name) > maxName || !nameForm.MatchString(r.Name) {
		return invalid("name", r.Name, `must be letters, digits and "._:@-", 1 to %d of them`, maxName)
	}
	if !fits(r.Pool) {
		return invalid("pool", r.Pool, "must be the name of a pool")
	}
	if _, _, err := worker.ParseAddress(r.Address); err != nil || !fits(r.Address) {
		return invalid("address", r.Address, "must be host:port, such as 10.0.0.1:8000 or [fd00::1]:8000")
	}
	if r.Engine != "" && !r.Engine.Valid() {
		return invalid("engine", string(r.Engine), `must be "auto", "vllm", "sglang" or "trtllm"`)
	}
	if r.Role != "" && r.Role != "prefill" && r.Role != "decode" {
		return invalid("role", r.Role, `must be "prefill", "decode", or empty for both`)
	}
	if len(r.Models) > MaxModels {
		return invalid("models", len(r.Models), "must be at most %d names", MaxModels)
	}
	for i, m := range r.Models {
		if m == "" || !fits(m) {
			return invalid(fmt.Sprintf("models[%d]", i), m, "must be a model's name")
		}
	}
	for _, n := range []struct {
		name  string
		value int
		most  int
	}{
		{"max_in_flight", r.Capacity.MaxInFlight, maxInFlight}, {"kv_blocks", r.Capacity.Blocks, maxCount},
		{"block_tokens", r.Capacity.BlockTokens, 1 << 20}, {"max_model_tokens", r.Capacity.MaxModelTokens, maxCount},
	} {
		if n.value < 0 || n.value > n.most {
			return invalid("capacity."+n.name, n.value, "must be 0 (not known) to %d", n.most)
		}
	}
	if r.TTL < 0 || r.TTL > 0 && r.TTL < 1 {
		return invalid("ttl_s", r.TTL, "must be 0 (as the gateway has it) or at least 1 second")
	}
	if err := r.checkLabels(); err != nil {
		return err
	}
	return r.Events.check()
}

// fits reports whether a text is short enough to be kept, and can be shown.
func fits(s string) bool {
	return len(s) <= maxText && !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\ufffd' })
}

func (r *Registration) checkLabels() error {
	if n := len(r.Labels) + len(r.Topology); n > maxLabels {
		return invalid("labels", n, "must be at most %d, those of topology included", maxLabels)
	}
	for in, labels := range map[string]map[string]string{"labels": r.Labels, "topology": r.Topology} {
		for _, name := range slices.Sorted(maps.Keys(labels)) {
			if name == "" || !fits(name) || !fits(labels[name]) {
				return invalid(in+"."+name, labels[name], "must have a name, and be at most %d bytes without control characters", maxText)
			}
		}
	}
	for name := range r.Topology {
		if _, twice := r.Labels[name]; twice {
			return invalid("topology."+name, r.Topology[name], "is among the labels as well")
		}
	}
	all := r.labels()
	if role, said := r.Labels["role"]; said && r.Role != "" && role != r.Role {
		return invalid("labels.role", role, "must be as role says, which is %q", r.Role)
	}
	if _, err := worker.ParseTraits(all); err != nil {
		return invalidf("%v", err)
	}
	return nil
}

// labels are all marks together.
func (r *Registration) labels() map[string]string {
	all := maps.Clone(r.Labels)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, r.Topology)
	if r.Role != "" {
		all["role"] = r.Role
	}
	if n := r.Capacity.MaxInFlight; n > 0 {
		all["max_in_flight"] = strconv.Itoa(n)
	}
	return all
}

func (e *Events) check() error {
	for _, at := range []struct{ name, endpoint string }{{"endpoint", e.Endpoint}, {"replay", e.Replay}} {
		switch {
		case at.endpoint == "":
		case !fits(at.endpoint) || !strings.HasPrefix(at.endpoint, "tcp://") && !strings.HasPrefix(at.endpoint, "ipc://"):
			return invalid("events."+at.name, at.endpoint, "must be tcp://host:port or ipc://path")
		case strings.HasPrefix(at.endpoint, "tcp://"):
			if _, _, err := worker.ParseAddress(strings.TrimPrefix(at.endpoint, "tcp://")); err != nil {
				return invalid("events."+at.name, at.endpoint, "must be tcp://host:port, such as tcp://10.0.0.1:5557")
			}
		}
	}
	switch {
	case !fits(e.Topic):
		return invalid("events.topic", e.Topic, "must be at most %d bytes without control characters", maxText)
	case e.Ranks < 0 || e.Ranks > maxRanks:
		return invalid("events.ranks", e.Ranks, "must be 0 (as its metrics show) to %d", maxRanks)
	case e.FirstRank < 0 || e.FirstRank > maxInFlight:
		return invalid("events.first_rank", e.FirstRank, "must be 0 to %d", maxInFlight)
	case e.Replay != "" && e.Endpoint == "":
		return invalid("events.replay", e.Replay, "needs events.endpoint as well")
	}
	return nil
}
