package config

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"attache/extproc"
	"attache/internal/field"
	"attache/internal/hints"
	"attache/internal/worker/discovery/dns"
	"attache/internal/worker/discovery/kubernetes"
	"attache/scoring"
	"attache/scoring/queue"
	"attache/xds"
)

// mistake is a configuration that breaks one rule, and the whole error that says so. DIR is the folder of writeFiles.
type mistake struct{ name, text, want string }

// mistakes has every rule once, ranges at both ends where one end does not break a second rule. They are in the order of
// the file's documentation.
var mistakes = []mistake{
	// pools
	{"no pool at all", "pools: []",
		`test.yaml:1: pools: must have at least one pool`},
	{"a pool without a name", "pools:\n  - models: [llama]",
		`test.yaml:2: pools[0].name: "": must be letters, digits, "-" or "_", at most 60 of them`},
	{"a pool's name with a space", "pools:\n  - name: my pool",
		`test.yaml:2: pools[0].name: "my pool": must be letters, digits, "-" or "_", at most 60 of them`},
	{"a pool's name of 61 letters", "pools:\n  - name: " + strings.Repeat("p", 61),
		`test.yaml:2: pools[0].name: "` + strings.Repeat("p", 61) + `": must be letters, digits, "-" or "_", at most 60 of them`},
	{"two pools of one name", "pools:\n  - name: a\n    models: [llama]\n  - name: a\n    models: [qwen]",
		`test.yaml:4: pools[1].name: "a": is already the name of pool 0; every pool needs its own`},
	{"one pool of several takes every model", "pools:\n  - name: a\n  - name: b\n    models: [qwen]",
		`test.yaml:2: pools[0].models: must name at least one model, because there are several pools to tell apart`},
	{"a model without a name", "pools:\n  - name: a\n    models:\n      - llama\n      - ''",
		`test.yaml:5: pools[0].models[1]: "": must be a model name, or the beginning of one followed by a single "*"`},
	{"a star inside a model's name", "pools:\n  - name: a\n    models: ['llama-*-8b']",
		`test.yaml:3: pools[0].models[0]: "llama-*-8b": must be a model name, or the beginning of one followed by a single "*"`},
	{"two pools claim one model", "pools:\n  - name: a\n    models: [llama]\n  - name: b\n    models:\n      - llama",
		`test.yaml:6: pools[1].models[0]: "llama": is already claimed by pool "a"`},
	{"an alias for no model", "pools:\n  - name: a\n    aliases:\n      fast: llama\n      good: ''",
		`test.yaml:5: pools[0].aliases.good: "": must be the model name that the worker knows`},
	{"an alias is another pool's model", "pools:\n  - name: a\n    models: [llama]\n  - name: b\n    aliases:\n      llama: qwen",
		`test.yaml:6: pools[1].aliases.llama: "llama": is already claimed by pool "a"`},
	{"a pool's own scoring with an unknown policy", "pools:\n  - name: a\n    scoring:\n      policy: fastest",
		`test.yaml:4: pools[0].scoring.policy: "fastest": must be one of ` + policies},
	{"a worker without a port", "pools:\n  - name: a\n    workers:\n      - 10.0.0.1:8000\n      - 10.0.0.2",
		`test.yaml:5: pools[0].workers[1]: "10.0.0.2": must be host:port, such as 10.0.0.1:8000 or [fd00::1]:8000`},
	{"a worker without a host", "pools:\n  - name: a\n    workers: [':8000']",
		`test.yaml:3: pools[0].workers[0]: ":8000": must be host:port, such as 10.0.0.1:8000 or [fd00::1]:8000`},
	{"a worker at port 0", "pools:\n  - name: a\n    workers: ['engine:0']",
		`test.yaml:3: pools[0].workers[0]: "engine:0": must be host:port, such as 10.0.0.1:8000 or [fd00::1]:8000`},
	{"a name with its port", "pools:\n  - name: a\n    discovery:\n      dns:\n        - {name: 'e:8000', port: 8000}",
		`test.yaml:5: pools[0].discovery.dns[0].name: "e:8000": must be a host name without scheme and port, such as engines.models.svc`},
	{"a name without a port", "pools:\n  - name: a\n    discovery:\n      dns:\n        - {name: e}",
		`test.yaml:5: pools[0].discovery.dns[0].port: 0: must be a port, or srv be set`},
	{"a port for SRV records", "pools:\n  - name: a\n    discovery:\n      dns:\n        - {name: e, srv: true, port: 8000}",
		`test.yaml:5: pools[0].discovery.dns[0].port: 8000: must be left out where srv is set: the records say it`},
	{"a family that is none", "pools:\n  - name: a\n    discovery:\n      dns:\n        - {name: e, port: 8000, family: inet}",
		`test.yaml:5: pools[0].discovery.dns[0].family: "inet": must be "ipv4", "ipv6" or empty`},
	{"names looked up all the time", "pools:\n  - name: a\n    discovery:\n      dns:\n        - {name: e, port: 8000, interval: 99ms}",
		`test.yaml:5: pools[0].discovery.dns[0].interval: 99ms: must be 0 (5s) or at least 100ms`},
	{"an engine that nobody knows, of a name", "pools:\n  - name: a\n    discovery:\n      dns:\n        - {name: e, port: 8000, engine: tgi}",
		`test.yaml:5: pools[0].discovery.dns[0].engine: "tgi": must be "auto", "vllm", "sglang", "trtllm" or empty`},
	{"a label of a name that is no number", "pools:\n  - name: a\n    discovery:\n      dns:\n        - {name: e, port: 8000, labels: {max_in_flight: '0'}}",
		`test.yaml:5: pools[0].discovery.dns[0].labels: max_in_flight: "0": must be a whole number from 1 to 1e+06`},
	{"one name twice", "pools:\n  - name: a\n    discovery:\n      dns:\n        - {name: e, port: 8000}\n        - {name: e, port: 8000, family: ipv6}",
		`test.yaml:6: pools[0].discovery.dns[1].name: "e": is already followed by dns[0]`},
	{"a namespace that is none", "pools:\n  - name: a\n    discovery:\n      kubernetes:\n        - {namespace: 'a/b', service: s}",
		`test.yaml:5: pools[0].discovery.kubernetes[0].namespace: "a/b": must be the name of an object of Kubernetes: small letters, digits, "-" and "."`},
	{"nothing of a cluster", "pools:\n  - name: a\n    discovery:\n      kubernetes:\n        - {port: 8000}",
		`test.yaml:5: pools[0].discovery.kubernetes[0].service: "": must be given, or selector or inference_pool, and only one of them`},
	{"a service that is none", "pools:\n  - name: a\n    discovery:\n      kubernetes:\n        - {service: My_Service}",
		`test.yaml:5: pools[0].discovery.kubernetes[0].service: "My_Service": must be the name of an object of Kubernetes: small letters, digits, "-" and "."`},
	{"a selector that is none", "pools:\n  - name: a\n    discovery:\n      kubernetes:\n        - {selector: 'a in'}",
		`test.yaml:5: pools[0].discovery.kubernetes[0].selector: "a in": must be a selector of labels such as "app=vllm,tier in (gpu, big)"`},
	{"an InferencePool that is none", "pools:\n  - name: a\n    discovery:\n      kubernetes:\n        - {inference_pool: 'a b'}",
		`test.yaml:5: pools[0].discovery.kubernetes[0].inference_pool: "a b": must be the name of an object of Kubernetes: small letters, digits, "-" and "."`},
	{"a service's port that is none", "pools:\n  - name: a\n    discovery:\n      kubernetes:\n        - {service: s, port: 70000}",
		`test.yaml:5: pools[0].discovery.kubernetes[0].port: 70000: must be a port, or 0`},
	{"a port for an InferencePool", "pools:\n  - name: a\n    discovery:\n      kubernetes:\n        - {inference_pool: p, port: 8000}",
		`test.yaml:5: pools[0].discovery.kubernetes[0].port: 8000: must be left out where inference_pool is set: its targetPorts say it`},
	{"a port's name that is none", "pools:\n  - name: a\n    discovery:\n      kubernetes:\n        - {service: s, port_name: 'a*b'}",
		`test.yaml:5: pools[0].discovery.kubernetes[0].port_name: "a*b": must be the name of a port, or the beginning of one followed by "*"`},
	{"a port by name and by number", "pools:\n  - name: a\n    discovery:\n      kubernetes:\n        - {service: s, port: 8000, port_name: http}",
		`test.yaml:5: pools[0].discovery.kubernetes[0].port_name: "http": must be left out where port or inference_pool is set`},
	{"an engine that nobody knows, of a service", "pools:\n  - name: a\n    discovery:\n      kubernetes:\n        - {service: s, engine: tgi}",
		`test.yaml:5: pools[0].discovery.kubernetes[0].engine: "tgi": must be "auto", "vllm", "sglang", "trtllm" or empty`},
	{"a label of a service that is no number", "pools:\n  - name: a\n    discovery:\n      kubernetes:\n        - {service: s, labels: {distance: far}}",
		`test.yaml:5: pools[0].discovery.kubernetes[0].labels: distance: "far": must be a number from 0 to 1e+09`},
	{"one service twice", "pools:\n  - name: a\n    discovery:\n      kubernetes:\n        - {service: s, port: 8000}\n        - {service: s, port: 8000}",
		`test.yaml:6: pools[0].discovery.kubernetes[1].service: "s": is already followed by kubernetes[0]`},
	{"an engine that nobody knows", "pools:\n  - name: a\n    engine: tgi",
		`test.yaml:3: pools[0].engine: "tgi": must be "auto", "vllm", "sglang" or "trtllm"`},

	// workers
	{"a health path without its slash", "workers:\n  health:\n    path: health",
		`test.yaml:3: workers.health.path: "health": must be empty or begin with "/"`},
	{"health checks without a pause", "workers:\n  health:\n    interval: 49ms",
		`test.yaml:3: workers.health.interval: 49ms: must be at least 50ms`},
	{"health checks without time for an answer", "workers:\n  health:\n    timeout: 0s",
		`test.yaml:3: workers.health.timeout: 0s: must be above 0`},
	{"unhealthy before the first failure", "workers:\n  health:\n    failures: 0",
		`test.yaml:3: workers.health.failures: 0: must be at least 1`},
	{"canaries all the time", "workers:\n  health:\n    canary:\n      interval: 999ms",
		`test.yaml:4: workers.health.canary.interval: 999ms: must be 0 (off) or at least 1s`},
	{"canaries without time for a token", "workers:\n  health:\n    canary:\n      timeout: 0s",
		`test.yaml:4: workers.health.canary.timeout: 0s: must be above 0`},
	{"a canary for a story", "workers:\n  health:\n    canary:\n      model: " + strings.Repeat("m", 257),
		`test.yaml:4: workers.health.canary.model: "` + strings.Repeat("m", 257) + `": must be a model's name`},
	{"metrics of busy workers without a pause", "workers:\n  metrics:\n    busy_interval: 49ms",
		`test.yaml:3: workers.metrics.busy_interval: 49ms: must be at least 50ms`},
	{"idle workers read more often than busy ones", "workers:\n  metrics:\n    busy_interval: 2s\n    idle_interval: 1s",
		`test.yaml:4: workers.metrics.idle_interval: 1s: must be at least busy_interval`},
	{"metrics without time for an answer", "workers:\n  metrics:\n    timeout: -1s",
		`test.yaml:3: workers.metrics.timeout: -1s: must be above 0`},
	{"a circuit that opens before the first failure", "workers:\n  circuit:\n    failures: 0",
		`test.yaml:3: workers.circuit.failures: 0: must be at least 1`},
	{"a circuit that opens for no time", "workers:\n  circuit:\n    pause: 0s",
		`test.yaml:3: workers.circuit.pause: 0s: must be above 0`},
	{"a circuit's longest pause below its first", "workers:\n  circuit:\n    pause: 10s\n    max_pause: 9s",
		`test.yaml:4: workers.circuit.max_pause: 9s: must be at least pause`},
	{"a negative wait for Envoy's acknowledgement", "workers:\n  ack_timeout: -1s",
		`test.yaml:2: workers.ack_timeout: -1s: must not be negative`},
	{"one change is flapping", "workers:\n  flap:\n    changes: 1",
		`test.yaml:3: workers.flap.changes: 1: must be 0 (never) or 2 to 100 changes`},
	{"endless changes are none", "workers:\n  flap:\n    changes: 101",
		`test.yaml:3: workers.flap.changes: 101: must be 0 (never) or 2 to 100 changes`},
	{"flapping in no time", "workers:\n  flap:\n    window: 0s",
		`test.yaml:3: workers.flap.window: 0s: must be above 0`},
	{"flapping without a pause", "workers:\n  flap:\n    pause: 0s",
		`test.yaml:3: workers.flap.pause: 0s: must be above 0`},
	{"flapping with a longest pause below its first", "workers:\n  flap:\n    pause: 10s\n    max_pause: 9s",
		`test.yaml:4: workers.flap.max_pause: 9s: must be at least pause`},
	{"a token that is not there", "workers:\n  registration:\n    token_file: DIR/missing",
		`test.yaml:3: workers.registration.token_file: "DIR/missing": must be a file that can be read`},
	{"a token of several words", "workers:\n  registration:\n    token_file: DIR/list.yaml",
		`test.yaml:3: workers.registration.token_file: "DIR/list.yaml": must hold one key of printable characters without spaces`},
	{"a token to be guessed", "workers:\n  registration:\n    token_file: DIR/token",
		`test.yaml:3: workers.registration.token_file: "DIR/token": must hold a token of at least 16 characters`},
	{"leases that end at once", "workers:\n  registration:\n    ttl: 999ms",
		`test.yaml:3: workers.registration.ttl: 999ms: must be 1s to 1h`},
	{"leases that never end", "workers:\n  registration:\n    ttl: 61m",
		`test.yaml:3: workers.registration.ttl: 1h1m0s: must be 1s to 1h`},
	{"nobody may register", "workers:\n  registration:\n    max_workers: 0",
		`test.yaml:3: workers.registration.max_workers: 0: must be 1 to 10000 workers`},
	{"everybody may register", "workers:\n  registration:\n    max_workers: 10001",
		`test.yaml:3: workers.registration.max_workers: 10001: must be 1 to 10000 workers`},

	// events
	{"a mode of events that is none", "pools:\n  - name: a\n    events:\n      mode: 'on'",
		`test.yaml:4: pools[0].events.mode: "on": must be "auto" or "off"`},
	{"events at a socket that is none", "pools:\n  - name: a\n    events:\n      bind: 5557",
		`test.yaml:4: pools[0].events.bind: "5557": must be tcp://host:port, where the host may be * for all and the port * for any free one, or ipc://path`},
	{"events at two places", "pools:\n  - name: a\n    events:\n      bind: 'tcp://*:5557'\n      port: 5557",
		`test.yaml:5: pools[0].events.port: 5557: must be 0 where bind is set: engines publish at the one or the other`},
	{"events at a port that is none", "pools:\n  - name: a\n    events:\n      port: 70000",
		`test.yaml:4: pools[0].events.port: 70000: must be 0 (not known) or a port`},
	{"replays at a port that is none", "pools:\n  - name: a\n    events:\n      replay_port: -1",
		`test.yaml:4: pools[0].events.replay_port: -1: must be 0 (none) or a port`},
	{"events and replays at one port", "pools:\n  - name: a\n    events:\n      port: 5557\n      replay_port: 5557",
		`test.yaml:5: pools[0].events.replay_port: 5557: must differ from port`},
	{"replays without time for an answer", "router:\n  events:\n    replay_timeout: 0s",
		`test.yaml:3: router.events.replay_timeout: 0s: must be above 0`},
	{"engines asked all the time", "router:\n  events:\n    verify_interval: 99ms",
		`test.yaml:3: router.events.verify_interval: 99ms: must be 0 (never) or at least 100ms`},
	{"a negative grace", "router:\n  events:\n    grace: -1s",
		`test.yaml:3: router.events.grace: -1s: must not be negative`},
	{"a negative half-life", "router:\n  events:\n    half_life: -1s",
		`test.yaml:3: router.events.half_life: -1s: must not be negative`},
	{"speculation for days", "router:\n  events:\n    speculation: 2h0m0s",
		`test.yaml:3: router.events.speculation: 2h0m0s: must be 0 to 1h`},
	{"a negative number of silent requests", "router:\n  events:\n    silent_requests: -1",
		`test.yaml:3: router.events.silent_requests: -1: must be 0 (no limit) or more requests`},
	{"a negative wait for replays", "router:\n  events:\n    ready_wait: -1s",
		`test.yaml:3: router.events.ready_wait: -1s: must not be negative`},
	{"snapshots all the time", "router:\n  snapshot:\n    interval: 10ms",
		`test.yaml:3: router.snapshot.interval: 10ms: must be at least 1s`},
	{"snapshots of nothing", "router:\n  snapshot:\n    max_bytes: 1KiB",
		`test.yaml:3: router.snapshot.max_bytes: 1024: must be at least 1MiB`},
	{"host memory better than the device", "router:\n  events:\n    host_credit: 1.1",
		`test.yaml:3: router.events.host_credit: 1.1: must be 0 to 1`},
	{"a disk that costs more than computing", "router:\n  events:\n    disk_credit: -0.1",
		`test.yaml:3: router.events.disk_credit: -0.1: must be 0 to 1`},
	{"a shared store better than the device", "router:\n  events:\n    remote_credit: 2",
		`test.yaml:3: router.events.remote_credit: 2: must be 0 to 1`},
	{"an index without memory", "router:\n  events:\n    index:\n      max_bytes: 1000",
		`test.yaml:4: router.events.index.max_bytes: 1000: must be at least 1MiB`},
	{"fewer orphans than none", "router:\n  events:\n    index:\n      max_orphans: -1",
		`test.yaml:4: router.events.index.max_orphans: -1: must be 0 (none) or more blocks`},
	{"no slots", "router:\n  events:\n    index:\n      max_slots: 0",
		`test.yaml:4: router.events.index.max_slots: 0: must be 1 to 1048576`},
	{"sockets without time to connect", "router:\n  events:\n    socket:\n      timeout: 0s",
		`test.yaml:4: router.events.socket.timeout: 0s: must be above 0`},
	{"heartbeats at negative intervals", "router:\n  events:\n    socket:\n      heartbeat_interval: -1s",
		`test.yaml:4: router.events.socket.heartbeat_interval: -1s: must not be negative`},
	{"heartbeats without time for an answer", "router:\n  events:\n    socket:\n      heartbeat_timeout: 0s",
		`test.yaml:4: router.events.socket.heartbeat_timeout: 0s: must be above 0`},
	{"dialling without a pause", "router:\n  events:\n    socket:\n      min_pause: 0s",
		`test.yaml:4: router.events.socket.min_pause: 0s: must be above 0`},
	{"a longest pause below the first", "router:\n  events:\n    socket:\n      max_pause: 1ms",
		`test.yaml:4: router.events.socket.max_pause: 1ms: must be at least min_pause`},
	{"frames of no size", "router:\n  events:\n    socket:\n      max_frame: 0",
		`test.yaml:4: router.events.socket.max_frame: 0B: must be above 0 and at most 1GiB`},
	{"messages without frames", "router:\n  events:\n    socket:\n      max_frames: 0",
		`test.yaml:4: router.events.socket.max_frames: 0: must be at least 1`},
	{"messages smaller than their frames", "router:\n  events:\n    socket:\n      max_message: 1MiB",
		`test.yaml:4: router.events.socket.max_message: 1MiB: must be above max_frame and below 2GiB`},
	{"sockets without peers", "router:\n  events:\n    socket:\n      max_peers: 0",
		`test.yaml:4: router.events.socket.max_peers: 0: must be at least 1`},

	// router
	{"a negative number of requests in flight", "router:\n  max_in_flight: -1",
		`test.yaml:2: router.max_in_flight: -1: must be 0 (no limit) or more requests`},
	{"a client told to come back in half a second", "router:\n  retry_after: 500ms",
		`test.yaml:2: router.retry_after: 500ms: must be at least 1s`},
	{"a decision that names nobody", "router:\n  alternatives: 0",
		`test.yaml:2: router.alternatives: 0: must be 1 to 16 workers`},
	{"a decision that names everybody", "router:\n  alternatives: 17",
		`test.yaml:2: router.alternatives: 17: must be 1 to 16 workers`},
	{"decisions forgotten before their log", "router:\n  feedback_ttl: 999ms",
		`test.yaml:2: router.feedback_ttl: 999ms: must be at least 1s`},
	{"a negative number of decisions to explain", "router:\n  recent: -1",
		`test.yaml:2: router.recent: -1: must be 0 to 10000 decisions`},
	{"all decisions to explain", "router:\n  recent: 10001",
		`test.yaml:2: router.recent: 10001: must be 0 to 10000 decisions`},
	{"a negative number of tenants", "router:\n  tenants: -1",
		`test.yaml:2: router.tenants: -1: must be 0 (none) to 10000 tenants`},
	{"more tenants than a page of metrics bears", "router:\n  tenants: 10001",
		`test.yaml:2: router.tenants: 10001: must be 0 (none) to 10000 tenants`},
	{"blocks without tokens", "router:\n  prompt:\n    block_tokens: 0",
		`test.yaml:3: router.prompt.block_tokens: 0: must be 1 to 4096 tokens`},
	{"blocks longer than prompts", "router:\n  prompt:\n    block_tokens: 4097",
		`test.yaml:3: router.prompt.block_tokens: 4097: must be 1 to 4096 tokens`},
	{"tokens without bytes", "router:\n  prompt:\n    bytes_per_token: 0",
		`test.yaml:3: router.prompt.bytes_per_token: 0: must be 1 to 64 bytes`},
	{"a memory of less than nothing", "router:\n  prompt:\n    memo_bytes: -1",
		`test.yaml:3: router.prompt.memo_bytes: -1: must be 0 (remember nothing) or more bytes`},
	{"a pool's blocks of less than nothing", "pools:\n- name: a\n  prompt: {block_tokens: -1}",
		`test.yaml:3: pools[0].prompt.block_tokens: -1: must be 0 (by default) to 4096 tokens`},
	{"a chat template for no model", "pools:\n- name: a\n  prompt: {chat_template: x.jinja}",
		`test.yaml:3: pools[0].prompt.chat_template: "x.jinja": needs model_dir, the model's folder`},
	{"a form that contents do not have", "pools:\n- name: a\n  prompt: {content_format: list}",
		`test.yaml:3: pools[0].prompt.content_format: "list": must be "string", "openai" or empty`},
	{"variables that are no object", "pools:\n- name: a\n  prompt: {chat_template_kwargs: 'thinking=no'}",
		`test.yaml:3: pools[0].prompt.chat_template_kwargs: "thinking=no": must be a JSON object such as {"enable_thinking":false}`},
	{"images of less than nothing", "pools:\n- name: a\n  prompt: {media_tokens: -1}",
		`test.yaml:3: pools[0].prompt.media_tokens: -1: must be 0 (not known) to 1048576 tokens`},
	{"more mismatches than requests", "pools:\n- name: a\n  prompt: {mismatch_limit: 2}",
		`test.yaml:3: pools[0].prompt.mismatch_limit: 2: must be 0 to 1`},
	{"tokens longer than words", "router:\n  prompt:\n    bytes_per_token: 65",
		`test.yaml:3: router.prompt.bytes_per_token: 65: must be 1 to 64 bytes`},
	{"blocks believed in for less than a second", "router:\n  index:\n    ttl: 999ms",
		`test.yaml:3: router.index.ttl: 999ms: must be 0 (no limit) or at least 1s`},
	{"blocks believed in for months", "router:\n  index:\n    ttl: 1001h",
		`test.yaml:3: router.index.ttl: 1001h0m0s: must be at most 1000h`},
	{"workers that hold nothing", "router:\n  index:\n    default_capacity: 0",
		`test.yaml:3: router.index.default_capacity: 0: must be at least 1 block`},
	{"an index without blocks", "router:\n  index:\n    max_blocks: 0",
		`test.yaml:3: router.index.max_blocks: 0: must be 1 to 1073741824 blocks`},
	{"an index beyond its slots", "router:\n  index:\n    max_blocks: 1073741825",
		`test.yaml:3: router.index.max_blocks: 1073741825: must be 1 to 1073741824 blocks`},

	// router.scoring
	{"an unknown policy", "router:\n  scoring:\n    policy: fastest",
		`test.yaml:3: router.scoring.policy: "fastest": must be one of ` + policies},
	{"a negative temperature", "router:\n  scoring:\n    temperature: -0.5",
		`test.yaml:3: router.scoring.temperature: -0.5: must be 0 (always the best) to 100`},
	{"a temperature above all", "router:\n  scoring:\n    temperature: 101",
		`test.yaml:3: router.scoring.temperature: 101: must be 0 (always the best) to 100`},
	{"a temperature that is no number", "router:\n  scoring:\n    temperature: .nan",
		`test.yaml:3: router.scoring.temperature: NaN: must be 0 (always the best) to 100`},
	{"a negative weight of computing again", "router:\n  scoring:\n    again: -1",
		`test.yaml:3: router.scoring.again: -1: must be 0 (nothing more) to 100`},
	{"a negative weight of crowds", "router:\n  scoring:\n    crowd: -1",
		`test.yaml:3: router.scoring.crowd: -1: must be 0 (not at all) to 100`},
	{"a negative weight of what is evicted", "router:\n  scoring:\n    evict: -1",
		`test.yaml:3: router.scoring.evict: -1: must be 0 (not at all) to 100`},
	{"too much weight for the wait for memory", "router:\n  scoring:\n    room: 101",
		`test.yaml:3: router.scoring.room: 101: must be 0 (not at all) to 100`},
	{"negative prefill limit of a worker", "router:\n  saturation:\n    prefill_tokens: -1",
		`test.yaml:3: router.saturation.prefill_tokens: -1: must be 0 (no limit) to 1000000000 tokens`},
	{"more KV memory than there can be", "router:\n  saturation:\n    kv_share: 11",
		`test.yaml:3: router.saturation.kv_share: 11: must be 0 (no limit) to 10`},
	{"a negative time to first token", "router:\n  saturation:\n    ttft: -1s",
		`test.yaml:3: router.saturation.ttft: -1s: must be 0 (no limit) to 1h`},
	{"a negative queue", "router:\n  queue:\n    limits:\n      requests: -1",
		`test.yaml:4: router.queue.limits.requests: -1: must be 0 to 10000000`},
	{"negative waiting tokens", "router:\n  queue:\n    limits:\n      prompt_tokens: -1",
		`test.yaml:4: router.queue.limits.prompt_tokens: -1: must be 0 (no limit) to 1000000000000000 tokens`},
	{"negative waiting bytes", "router:\n  queue:\n    limits:\n      body_bytes: -1",
		`test.yaml:4: router.queue.limits.body_bytes: "-1": must be a size such as 65536, 512KiB, 16MiB or 1GiB`},
	{"a wait that is none", "router:\n  queue:\n    limits:\n      max_wait: 1us",
		`test.yaml:4: router.queue.limits.max_wait: 1µs: must be 0 (no limit) or 1ms to 1h`},
	{"a wait without end, though Envoy's patience has one", "router:\n  queue:\n    limits:\n      requests: 1\n      max_wait: 0s",
		`test.yaml:5: router.queue.limits.max_wait: 0s: must be above 0s, and with xds.gateway.message_timeout (2s) added at most ` +
			`xds.gateway.max_message_timeout (2m0s): Envoy waits no longer for a decision`},
	{"a longer wait than Envoy's", "router:\n  queue:\n    limits:\n      requests: 1\n      max_wait: 119s",
		`test.yaml:5: router.queue.limits.max_wait: 1m59s: must be above 0s, and with xds.gateway.message_timeout (2s) added at most ` +
			`xds.gateway.max_message_timeout (2m0s): Envoy waits no longer for a decision`},
	{"two classes of one name", "router:\n  queue:\n    classes:\n    - name: a\n    - name: a",
		`test.yaml:5: router.queue.classes[1].name: "a": must be a name that no class before it has`},
	{"an unknown order", "router:\n  queue:\n    classes:\n    - policy: sjf",
		`test.yaml:4: router.queue.classes[0].policy: "sjf": must be one of fcfs, lcfs, wspt, edf`},
	{"a class without a share", "router:\n  queue:\n    classes:\n    - quantum: 0",
		`test.yaml:4: router.queue.classes[0].quantum: 0: must be 1 to 1073741824 tokens`},
	{"negative ageing", "router:\n  queue:\n    classes:\n    - ageing: -1s",
		`test.yaml:4: router.queue.classes[0].ageing: -1s: must be 0 (none) or 1ms to 1h`},
	{"a class without an objective", "router:\n  queue:\n    classes:\n    - default_slo: 0s",
		`test.yaml:4: router.queue.classes[0].default_slo: 0s: must be above 0s, at most 1h`},
	{"a class with a negative queue", "router:\n  queue:\n    classes:\n    - limits: {requests: -1}",
		`test.yaml:4: router.queue.classes[0].limits.requests: -1: must be 0 to 10000000`},
	{"a class with negative tokens", "router:\n  queue:\n    classes:\n    - limits: {prompt_tokens: -1}",
		`test.yaml:4: router.queue.classes[0].limits.prompt_tokens: -1: must be 0 (no limit) to 1000000000000000 tokens`},
	{"a class with negative bytes", "router:\n  queue:\n    classes:\n    - limits: {body_bytes: -1}",
		`test.yaml:4: router.queue.classes[0].limits.body_bytes: "-1": must be a size such as 65536, 512KiB, 16MiB or 1GiB`},
	{"a class with a wait that is none", "router:\n  queue:\n    classes:\n    - limits: {max_wait: 1us}",
		`test.yaml:4: router.queue.classes[0].limits.max_wait: 1µs: must be 0 (no limit) or 1ms to 1h`},
	{"a bucket without an end", "router:\n  queue:\n    buckets:\n    - {up_to: -1, class: default}",
		`test.yaml:4: router.queue.buckets[0].up_to: -1: must be above 0 tokens, or 0 (any) in the last bucket`},
	{"a bucket without a class", "router:\n  queue:\n    buckets:\n    - {up_to: 100, class: gold}",
		`test.yaml:4: router.queue.buckets[0].class: "gold": must be the name of a class`},
	{"a priority below all", "router:\n  queue:\n    max_priority: -1",
		`test.yaml:3: router.queue.max_priority: -1: must be 0 to 1000000`},
	{"nobody in a fair queue", "router:\n  queue:\n    fairness:\n      flows: 0",
		`test.yaml:4: router.queue.fairness.flows: 0: must be 1 to 1048576`},
	{"no memory in a fair queue", "router:\n  queue:\n    fairness:\n      half_life: 0s",
		`test.yaml:4: router.queue.fairness.half_life: 0s: must be 1s to 24h`},
	{"an unknown affinity", "router:\n  affinity:\n    mode: sticky",
		`test.yaml:3: router.affinity.mode: "sticky": must be off, soft or hard`},
	{"an affinity without time", "router:\n  affinity:\n    ttl: 0s",
		`test.yaml:3: router.affinity.ttl: 0s: must be 1s to 1000h`},
	{"an affinity without sessions", "router:\n  affinity:\n    sessions: 0",
		`test.yaml:3: router.affinity.sessions: 0: must be 1 to 16777216`},
	{"bookings that hardly last", "router:\n  booking_ttl: 59s", `test.yaml:2: router.booking_ttl: 59s: must be at least 1m`},
	{"a negative alpha", "router:\n  scoring:\n    alpha: -0.01",
		`test.yaml:3: router.scoring.alpha: -0.01: must be 0 to 10`},
	{"an alpha above all", "router:\n  scoring:\n    alpha: 11",
		`test.yaml:3: router.scoring.alpha: 11: must be 0 to 10`},
	{"an unknown speed profile", "router:\n  scoring:\n    speed:\n      profile: abacus",
		`test.yaml:4: router.scoring.speed.profile: "abacus": must be one of qwen3-32b-2xh100, qwen3-32b-2xh100-fast, ` +
			`llama-3-70b-4xh100, llama-3-8b-1xh100, dynamo-mocker`},
	{"a negative overhead of a step", "router:\n  scoring:\n    speed:\n      overhead_ms: -1",
		`test.yaml:4: router.scoring.speed.overhead_ms: -1: must be 0 to 1000000000`},
	{"a negative time for reading weights", "router:\n  scoring:\n    speed:\n      weights_ms: -1",
		`test.yaml:4: router.scoring.speed.weights_ms: -1: must be 0 to 1000000000`},
	{"a negative time per token", "router:\n  scoring:\n    speed:\n      per_token_us: -1",
		`test.yaml:4: router.scoring.speed.per_token_us: -1: must be 0 to 1000000000`},
	{"an endless time per token", "router:\n  scoring:\n    speed:\n      per_token_us: .inf",
		`test.yaml:4: router.scoring.speed.per_token_us: +Inf: must be 0 to 1000000000`},
	{"a negative time per pair of tokens", "router:\n  scoring:\n    speed:\n      per_pair_ns: -1",
		`test.yaml:4: router.scoring.speed.per_pair_ns: -1: must be 0 to 1000000000`},
	{"a negative time per cached token", "router:\n  scoring:\n    speed:\n      per_kv_token_ns: -1",
		`test.yaml:4: router.scoring.speed.per_kv_token_ns: -1: must be 0 to 1000000000`},
	{"a negative credit for overlap", "router:\n  scoring:\n    dynamo:\n      overlap_score_credit: -1",
		`test.yaml:4: router.scoring.dynamo.overlap_score_credit: -1: must be 0 to 1000000000`},
	{"a negative decay of that credit", "router:\n  scoring:\n    dynamo:\n      overlap_score_credit_decay: -1",
		`test.yaml:4: router.scoring.dynamo.overlap_score_credit_decay: -1: must be 0 to 1000000000`},
	{"a negative weight of prefill", "router:\n  scoring:\n    dynamo:\n      prefill_load_scale: -1",
		`test.yaml:4: router.scoring.dynamo.prefill_load_scale: -1: must be 0 to 1000000000`},
	{"a negative weight of running requests", "router:\n  scoring:\n    dynamo:\n      decode_active_request_weight: -1",
		`test.yaml:4: router.scoring.dynamo.decode_active_request_weight: -1: must be 0 to 1000000000`},
	{"a negative weight of a shared pool", "router:\n  scoring:\n    dynamo:\n      shared_cache_multiplier: -1",
		`test.yaml:4: router.scoring.dynamo.shared_cache_multiplier: -1: must be 0 to 1000000000`},
	{"a block in host memory worth more than one on the device", "router:\n  scoring:\n    dynamo:\n      host_cache_hit_weight: 1.5",
		`test.yaml:4: router.scoring.dynamo.host_cache_hit_weight: 1.5: must be 0 to 1`},
	{"a block on disk worth less than nothing", "router:\n  scoring:\n    dynamo:\n      disk_cache_hit_weight: -0.5",
		`test.yaml:4: router.scoring.dynamo.disk_cache_hit_weight: -0.5: must be 0 to 1`},
	{"an unknown way to break ties", "router:\n  scoring:\n    dynamo:\n      tie_break: first",
		`test.yaml:4: router.scoring.dynamo.tie_break: "first": must be random or tree-size`},
	{"a negative weight of the cache", "router:\n  scoring:\n    weighted:\n      cache: -1",
		`test.yaml:4: router.scoring.weighted.cache: -1: must be 0 to 1000000000`},
	{"a negative weight of the load", "router:\n  scoring:\n    weighted:\n      load: -1",
		`test.yaml:4: router.scoring.weighted.load: -1: must be 0 to 1000000000`},
	{"a negative weight of the latency", "router:\n  scoring:\n    weighted:\n      latency: -1",
		`test.yaml:4: router.scoring.weighted.latency: -1: must be 0 to 1000000000`},
	{"a negative weight of the batch", "router:\n  scoring:\n    weighted:\n      batch: -1",
		`test.yaml:4: router.scoring.weighted.batch: -1: must be 0 to 1000000000`},
	{"a negative weight of the memory", "router:\n  scoring:\n    weighted:\n      memory: -1",
		`test.yaml:4: router.scoring.weighted.memory: -1: must be 0 to 1000000000`},
	{"a negative weight of the distance", "router:\n  scoring:\n    weighted:\n      distance: -1",
		`test.yaml:4: router.scoring.weighted.distance: -1: must be 0 to 1000000000`},
	{"a blend of nothing", "router:\n  scoring:\n    weighted: {cache: 0, load: 0, latency: 0}",
		`test.yaml:3: router.scoring.weighted.cache: 0: must not be 0 while load and latency are`},
	{"a size made of nothing", "router:\n  scoring:\n    weighted: {batch: 0, memory: 0, distance: 0}",
		`test.yaml:3: router.scoring.weighted.batch: 0: must not be 0 while memory and distance are`},
	{"everybody is warm", "router:\n  scoring:\n    sticky:\n      threshold: 0",
		`test.yaml:4: router.scoring.sticky.threshold: 0: must be above 0, to 1`},
	{"nobody is warm", "router:\n  scoring:\n    sticky:\n      threshold: 1.01",
		`test.yaml:4: router.scoring.sticky.threshold: 1.01: must be above 0, to 1`},
	{"saturated below nothing", "router:\n  scoring:\n    sticky:\n      tau_tokens: -1",
		`test.yaml:4: router.scoring.sticky.tau_tokens: -1: must be 0 to 1000000000`},
	{"less than a fair share", "router:\n  scoring:\n    chwbl:\n      load_factor: 0.99",
		`test.yaml:4: router.scoring.chwbl.load_factor: 0.99: must be 1 to 1000`},
	{"no bound of the load", "router:\n  scoring:\n    chwbl:\n      load_factor: .inf",
		`test.yaml:4: router.scoring.chwbl.load_factor: +Inf: must be 1 to 1000`},
	{"a negative chunk", "router:\n  scoring:\n    speed:\n      chunk_tokens: -1",
		`test.yaml:4: router.scoring.speed.chunk_tokens: -1: must be 0 (as the profile) to 16777216 tokens`},
	{"a chunk longer than any prompt", "router:\n  scoring:\n    speed:\n      chunk_tokens: 16777217",
		`test.yaml:4: router.scoring.speed.chunk_tokens: 16777217: must be 0 (as the profile) to 16777216 tokens`},

	// extproc
	{"ext_proc listens without a port", "extproc:\n  listen: localhost",
		`test.yaml:2: extproc.listen: "localhost": must be host:port such as 127.0.0.1:9002, or unix:///path/to.sock`},
	{"ext_proc listens beyond the last port", "extproc:\n  listen: 127.0.0.1:65536",
		`test.yaml:2: extproc.listen: "127.0.0.1:65536": must be host:port such as 127.0.0.1:9002, or unix:///path/to.sock`},
	{"a socket's path that is relative", "extproc:\n  listen: unix://run/attache.sock",
		`test.yaml:2: extproc.listen: "unix://run/attache.sock": must be unix:// followed by an absolute path of at most 100 bytes`},
	{"a socket's path that the system would cut", "extproc:\n  listen: unix:///" + strings.Repeat("s", 100),
		`test.yaml:2: extproc.listen: "unix:///` + strings.Repeat("s", 100) +
			`": must be unix:// followed by an absolute path of at most 100 bytes`},
	{"no bodies at all", "extproc:\n  max_body: 0",
		`test.yaml:2: extproc.max_body: 0B: must be above 0 and at most 1GiB`},
	{"bodies above a gibibyte", "extproc:\n  max_body: 1025MiB\n  max_message: 2GiB",
		`test.yaml:2: extproc.max_body: 1025MiB: must be above 0 and at most 1GiB`},
	{"messages that do not hold the largest body", "extproc:\n  max_body: 16MiB\n  max_message: 16MiB",
		`test.yaml:3: extproc.max_message: 16MiB: must exceed max_body by at least 1MiB`},
	{"malformed bodies neither refused nor passed", "extproc:\n  malformed: repair",
		`test.yaml:2: extproc.malformed: "repair": must be "reject" or "pass"`},
	{"other requests neither balanced nor passed", "extproc:\n  other: reject",
		`test.yaml:2: extproc.other: "reject": must be "load" or "pass"`},
	{"a body mode that is not ext_proc's", "extproc:\n  assume_mode: streamed",
		`test.yaml:2: extproc.assume_mode: "streamed": must be "buffered" or "full_duplex"`},
	{"a negative wait before draining", "extproc:\n  drain_wait: -1s",
		`test.yaml:2: extproc.drain_wait: -1s: must not be negative`},
	{"a negative time for draining", "extproc:\n  drain_timeout: -1s",
		`test.yaml:2: extproc.drain_timeout: -1s: must not be negative`},
	{"bodies to record, and nowhere to put them", "extproc:\n  record_bodies: true",
		`test.yaml:2: extproc.record_bodies: true: needs record_panics, the folder to write to`},
	{"answers that tell everything", "extproc:\n  response_headers: all",
		`test.yaml:2: extproc.response_headers: "all": must be "off", "trace", "server-timing" or "both"`},
	{"hints of a group that there is not", "extproc:\n  hints:\n    trust:\n      - session\n      - price",
		`test.yaml:5: extproc.hints.trust[1]: "price": must be one of session, length, slo, cache, priority, tenant, pin, policy, model, all, none`},
	{"all hints and one more", "extproc:\n  hints:\n    trust: [pin, all]",
		`test.yaml:3: extproc.hints.trust[1]: "all": must be the only word of the list`},
	{"no hints and one", "extproc:\n  hints:\n    trust: [none, pin]",
		`test.yaml:3: extproc.hints.trust[0]: "none": must be the only word of the list`},
	{"a group of hints twice", "extproc:\n  hints:\n    trust: [pin, pin]",
		`test.yaml:3: extproc.hints.trust[1]: "pin": must not be repeated`},
	{"a certificate that is not there", "extproc:\n  tls:\n    cert: DIR/missing.pem\n    key: DIR/cert.pem",
		`test.yaml:3: extproc.tls.cert: "DIR/missing.pem": must be a PEM file that can be read`},
	{"a certificate where the private key should be", "extproc:\n  tls:\n    cert: DIR/cert.pem\n    key: DIR/cert.pem",
		`test.yaml:2: extproc.tls: cert and key: tls: found a certificate rather than a key in the PEM for the private key`},
	{"authorities without a certificate", "extproc:\n  tls:\n    cert: DIR/cert.pem\n    key: DIR/key.pem\n    client_ca: DIR/jwks.json",
		`test.yaml:2: extproc.tls: client_ca: DIR/jwks.json holds no PEM certificate`},
	{"a private key that is not there", "extproc:\n  tls:\n    cert: DIR/cert.pem\n    key: DIR/missing.pem",
		`test.yaml:4: extproc.tls.key: "DIR/missing.pem": must be a PEM file that can be read`},
	{"client authorities that are not there",
		"extproc:\n  tls:\n    cert: DIR/cert.pem\n    key: DIR/cert.pem\n    client_ca: DIR/missing.pem",
		`test.yaml:5: extproc.tls.client_ca: "DIR/missing.pem": must be a PEM file that can be read, or empty`},

	// tracing
	{"a collector that is a URL", "tracing:\n  endpoint: http://collector:4318",
		`test.yaml:2: tracing.endpoint: "http://collector:4318": must be host:port such as collector:4318, or empty (off)`},
	{"a collector without a port", "tracing:\n  endpoint: collector",
		`test.yaml:2: tracing.endpoint: "collector": must be host:port such as collector:4318, or empty (off)`},
	{"a protocol that is not OTLP's", "tracing:\n  protocol: zipkin",
		`test.yaml:2: tracing.protocol: "zipkin": must be "http" or "grpc"`},
	{"fewer traces than none", "tracing:\n  ratio: -0.1",
		`test.yaml:2: tracing.ratio: -0.1: must be 0 (only those whose sender wants it) to 1 (all)`},
	{"more traces than requests", "tracing:\n  ratio: 1.1",
		`test.yaml:2: tracing.ratio: 1.1: must be 0 (only those whose sender wants it) to 1 (all)`},
	{"headers for a collector that are not there", "tracing:\n  headers_file: DIR/missing.yaml",
		`test.yaml:2: tracing.headers_file: "DIR/missing.yaml": must be a file that can be read`},
	{"a process without a name in traces", "tracing:\n  service_name: ''",
		`test.yaml:2: tracing.service_name: "": must not be empty`},
	{"no room for spans", "tracing:\n  queue: 0",
		`test.yaml:2: tracing.queue: 0: must be 1 to 1048576 requests`},
	{"endless room for spans", "tracing:\n  queue: 1048577",
		`test.yaml:2: tracing.queue: 1048577: must be 1 to 1048576 requests`},

	// warm
	{"prompts sent without a pause", "warm:\n  interval: 999ms",
		`test.yaml:2: warm.interval: 999ms: must be 1s to 1h`},
	{"prompts hardly ever sent", "warm:\n  interval: 61m",
		`test.yaml:2: warm.interval: 1h1m0s: must be 1s to 1h`},
	{"no memory for prompts", "warm:\n  max_bytes: 1023KiB",
		`test.yaml:2: warm.max_bytes: 1023KiB: must be 1MiB to 64GiB`},
	{"endless memory for prompts", "warm:\n  max_bytes: 65GiB",
		`test.yaml:2: warm.max_bytes: 65GiB: must be 1MiB to 64GiB`},
	{"no prompts to keep", "warm:\n  max_entries: 0",
		`test.yaml:2: warm.max_entries: 0: must be 1 to 10000 prompts`},
	{"too many prompts to keep", "warm:\n  max_entries: 10001",
		`test.yaml:2: warm.max_entries: 10001: must be 1 to 10000 prompts`},
	{"nothing may be sent", "warm:\n  concurrency: 0",
		`test.yaml:2: warm.concurrency: 0: must be 1 to 256 requests`},
	{"a flood of kept prompts", "warm:\n  concurrency: 257",
		`test.yaml:2: warm.concurrency: 257: must be 1 to 256 requests`},
	{"no time for one token", "warm:\n  timeout: 99ms",
		`test.yaml:2: warm.timeout: 99ms: must be 100ms to 10m`},
	{"too much time for one token", "warm:\n  timeout: 11m",
		`test.yaml:2: warm.timeout: 11m0s: must be 100ms to 10m`},
	{"a key that is not there", "warm:\n  api_key_file: DIR/missing.yaml",
		`test.yaml:2: warm.api_key_file: "DIR/missing.yaml": must be a file that can be read`},
	{"a key of several lines", "warm:\n  api_key_file: DIR/list.yaml",
		`test.yaml:2: warm.api_key_file: "DIR/list.yaml": must hold one key of printable characters without spaces`},

	// xds
	{"the control plane listens without a port", "xds:\n  listen: localhost",
		`test.yaml:2: xds.listen: "localhost": must be host:port such as 127.0.0.1:9002, or unix:///path/to.sock`},
	{"an Envoy without a name", "xds:\n  gateway:\n    node_id: ''",
		`test.yaml:3: xds.gateway.node_id: "": must not be empty`},
	{"TLS to attache without authorities", "xds:\n  gateway:\n    tls: {name: attache}",
		`test.yaml:3: xds.gateway.tls.ca: "": must be a PEM file on Envoy's machine`},
	{"Redis by a URL with a password", "redis:\n  addresses: ['redis://:secret@redis:6379']",
		`test.yaml:2: redis.addresses[0]: "(hidden)": must be host:port, without a user and a password: they have keys of their own`},
	{"Redis without a port", "redis:\n  addresses: [redis]",
		`test.yaml:2: redis.addresses[0]: "redis": must be host:port such as redis:6379, or unix:///path/to.sock for a single server`},
	{"Redis in a ring", "redis:\n  mode: ring",
		`test.yaml:2: redis.mode: "ring": must be "auto", "standalone", "sentinel" or "cluster"`},
	{"sentinels without the name of what they watch", "redis:\n  addresses: [a:26379]\n  mode: sentinel",
		`test.yaml:1: redis.master_name: "": must be given for mode "sentinel", and for no other`},
	{"a user of Redis without a password", "redis:\n  username: attache",
		`test.yaml:2: redis.username: "attache": must have a password, in password_file`},
	{"a password file that is not there", "redis:\n  password_file: /nonexistent",
		`test.yaml:2: redis.password_file: "/nonexistent": must be a file that can be read, of at most 4096 bytes`},
	{"a user of sentinels without a password", "redis:\n  sentinel_username: attache",
		`test.yaml:2: redis.sentinel_username: "attache": must have a password, in sentinel_password_file`},
	{"a sentinels' password file that is not there", "redis:\n  sentinel_password_file: /nonexistent",
		`test.yaml:2: redis.sentinel_password_file: "/nonexistent": must be a file that can be read, of at most 4096 bytes`},
	{"Redis' authorities that are not there", "redis:\n  tls: {enabled: true, ca_file: ca.pem}",
		`test.yaml:2: redis.tls.ca_file: "ca.pem": must be a PEM file with certificates`},
	{"a certificate for Redis that is not there", "redis:\n  tls: {enabled: true, cert_file: c.pem, key_file: k.pem}",
		`test.yaml:2: redis.tls.cert_file: "c.pem": must be a PEM file with the certificate of key_file`},
	{"a key for Redis without its certificate", "redis:\n  tls: {enabled: true, key_file: k.pem}",
		`test.yaml:2: redis.tls.key_file: "k.pem": must be given together with cert_file`},
	{"Redis' name without TLS", "redis:\n  tls: {server_name: redis}",
		`test.yaml:2: redis.tls.server_name: "redis": must be empty while tls.enabled is false`},
	{"a database of Redis below 0", "redis:\n  database: -1",
		`test.yaml:2: redis.database: -1: must be 0 to 32768, and 0 for a cluster`},
	{"a prefix with braces", "redis:\n  prefix: 'a{b}'",
		`test.yaml:2: redis.prefix: "a{b}": must be 1 to 64 letters, digits, and . _ : -`},
	{"no time to connect to Redis", "redis:\n  dial_timeout: 0s",
		`test.yaml:2: redis.dial_timeout: 0s: must be 10ms to 1m0s`},
	{"Redis may take an hour", "redis:\n  timeout: 1h",
		`test.yaml:2: redis.timeout: 1h0m0s: must be 10ms to 1m0s`},
	{"no connection to Redis", "redis:\n  pool_size: 0",
		`test.yaml:2: redis.pool_size: 0: must be 1 to 1024 connections`},
	{"Redis is pinged all the time", "redis:\n  ping_interval: 1ms",
		`test.yaml:2: redis.ping_interval: 1ms: must be 10ms to 1h0m0s`},
	{"streams of nothing", "redis:\n  max_stream_length: 0",
		`test.yaml:2: redis.max_stream_length: 0: must be 1 to 100000000 records`},
	{"streams that go at once", "redis:\n  stream_ttl: 1s",
		`test.yaml:2: redis.stream_ttl: 1s: must be 1m to 87600h`},
	{"records of nothing", "redis:\n  max_record: 0",
		`test.yaml:2: redis.max_record: 0B: must be 1KiB to 16MiB`},
	{"values larger than Redis takes", "redis:\n  max_value: 1GiB",
		`test.yaml:2: redis.max_value: 1GiB: must be 1KiB to 512MiB, which is the most that Redis takes`},
	{"groups of nobody", "redis:\n  max_members: 0",
		`test.yaml:2: redis.max_members: 0: must be 1 to 100000 members`},
	{"replicas that gather for a minute", "replicas:\n  batch: 1m",
		`test.yaml:2: replicas.batch: 1m0s: must be 0s to 1s`},
	{"a heartbeat of nanoseconds", "replicas:\n  heartbeat: 1ns",
		`test.yaml:2: replicas.heartbeat: 1ns: must be 10ms to 1m`},
	{"a lease shorter than two heartbeats", "replicas:\n  heartbeat: 1s\n  lease: 1s",
		`test.yaml:3: replicas.lease: 1s: must be at least twice heartbeat`},
	{"requests that were left count for ever", "replicas:\n  handover: 10000h",
		`test.yaml:2: replicas.handover: 10000h0m0s: must be 0s to 1h`},
	{"direct replicas without a port", "replicas:\n  direct:\n    listen: 0.0.0.0",
		`test.yaml:3: replicas.direct.listen: "0.0.0.0": must be host:port such as 0.0.0.0:9004, or empty (off)`},
	{"direct replicas for everybody", "replicas:\n  direct:\n    listen: 0.0.0.0:9004",
		`test.yaml:3: replicas.direct.listen: "0.0.0.0:9004": is no loopback address: needs token_file or tls, or insecure: true where everybody who can connect is trusted`},
	{"direct replicas and Redis", "redis:\n  addresses: ['redis:6379']\nreplicas:\n  direct:\n    listen: 127.0.0.1:9004",
		`test.yaml:5: replicas.direct.listen: "127.0.0.1:9004": must be empty where redis.addresses are given: replicas tell each other one way`},
	{"a direct replica without a port", "replicas:\n  direct:\n    listen: 127.0.0.1:9004\n    peers: [attache-1]",
		`test.yaml:4: replicas.direct.peers[0]: "attache-1": must be host:port such as attache-1.attache:9004`},
	{"a name of direct replicas with a port", "replicas:\n  direct:\n    listen: 127.0.0.1:9004\n    dns: attache:9004",
		`test.yaml:4: replicas.direct.dns: "attache:9004": must be a name without a port, or empty`},
	{"direct replicas at no port", "replicas:\n  direct:\n    listen: 127.0.0.1:9004\n    port: 0",
		`test.yaml:4: replicas.direct.port: 0: must be 1 to 65535`},
	{"direct replicas looked for all the time", "replicas:\n  direct:\n    interval: 1ms",
		`test.yaml:3: replicas.direct.interval: 1ms: must be 100ms to 10m`},
	{"direct replicas with a token that is not there", "replicas:\n  direct:\n    token_file: /nonexistent",
		`test.yaml:3: replicas.direct.token_file: "/nonexistent": token_file: must be a file that can be read: open /nonexistent: no such file or directory`},
	{"direct replicas with certificates that are not there", "replicas:\n  direct:\n    tls: {cert: /nonexistent, key: /nonexistent, ca: /nonexistent}",
		`test.yaml:3: replicas.direct.tls: cert and key: open /nonexistent: no such file or directory`},
	{"direct replicas without a certificate", "replicas:\n  direct:\n    tls: {key: k.pem, ca: ca.pem}",
		`test.yaml:3: replicas.direct.tls.cert: "": must be the PEM file of this replica's certificate`},
	{"direct replicas without a key", "replicas:\n  direct:\n    tls: {cert: c.pem, ca: ca.pem}",
		`test.yaml:3: replicas.direct.tls.key: "": must be the PEM file of the certificate's private key`},
	{"direct replicas without an authority", "replicas:\n  direct:\n    tls: {cert: c.pem, key: k.pem}",
		`test.yaml:3: replicas.direct.tls.ca: "": must be a PEM file of the authorities that sign the replicas' certificates`},
	{"direct replicas with too little memory", "replicas:\n  direct:\n    buffer: 1KiB",
		`test.yaml:3: replicas.direct.buffer: 1KiB: must be 1MiB to 1GiB`},
	{"TLS to attache without a name", "xds:\n  gateway:\n    tls: {ca: ca.pem}",
		`test.yaml:3: xds.gateway.tls.name: "": must be a DNS name in attache's certificate`},
	{"Envoy's certificate without its key", "xds:\n  gateway:\n    tls: {ca: ca.pem, name: attache, cert: envoy.pem}",
		`test.yaml:3: xds.gateway.tls.key: "": must be given together with tls.cert, or neither`},
	{"the gateway listens without a port", "xds:\n  gateway:\n    listen: 0.0.0.0",
		`test.yaml:3: xds.gateway.listen: "0.0.0.0": must be IP:port, such as 0.0.0.0:8080`},
	{"Envoy's admin endpoint by the name of a port", "xds:\n  gateway:\n    admin: 127.0.0.1:http",
		`test.yaml:3: xds.gateway.admin: "127.0.0.1:http": must be IP:port, such as 0.0.0.0:8080`},
	{"a baseline without a host and a colon", "xds:\n  gateway:\n    baseline: 8081",
		`test.yaml:3: xds.gateway.baseline: "8081": must be IP:port, such as 0.0.0.0:8080`},
	{"the second replica without a port", "xds:\n  gateway:\n    extproc:\n      - attache-0:9002\n      - attache-1",
		`test.yaml:5: xds.gateway.extproc[1]: "attache-1": must be host:port such as 127.0.0.1:9002, or unix:///path/to.sock`},
	{"the control plane reached without a port", "xds:\n  gateway:\n    xds: [attache]",
		`test.yaml:3: xds.gateway.xds[0]: "attache": must be host:port such as 127.0.0.1:9002, or unix:///path/to.sock`},
	{"an Envoy that is too old", "xds:\n  gateway:\n    envoy_version: '1.30'",
		`test.yaml:3: xds.gateway.envoy_version: "1.30": must be 1.38, 1.39 or 1.40`},
	{"a body mode that is not Envoy's", "xds:\n  gateway:\n    body_mode: STREAMED",
		`test.yaml:3: xds.gateway.body_mode: "STREAMED": must be "BUFFERED" or "FULL_DUPLEX_STREAMED"`},
	{"no time for a reply", "xds:\n  gateway:\n    message_timeout: 49ms",
		`test.yaml:3: xds.gateway.message_timeout: 49ms: must be 50ms to 1h`},
	{"the queue's wait is shorter than a reply's", "xds:\n  gateway:\n    message_timeout: 10s\n    max_message_timeout: 9s",
		`test.yaml:4: xds.gateway.max_message_timeout: 9s: must be at least message_timeout and at most 1h`},
	{"a wait in the queue above an hour", "xds:\n  gateway:\n    max_message_timeout: 61m\n    idle_timeout: 2h",
		`test.yaml:3: xds.gateway.max_message_timeout: 1h1m0s: must be at least message_timeout and at most 1h`},
	{"requests ended while they wait", "xds:\n  gateway:\n    max_message_timeout: 2m\n    idle_timeout: 2m",
		`test.yaml:4: xds.gateway.idle_timeout: 2m0s: must exceed max_message_timeout, or waiting requests are ended`},
	{"Envoy checks without a pause", "xds:\n  gateway:\n    health_interval: 49ms",
		`test.yaml:3: xds.gateway.health_interval: 49ms: must be 50ms to 1m`},
	{"Envoy hardly ever checks", "xds:\n  gateway:\n    health_interval: 61s",
		`test.yaml:3: xds.gateway.health_interval: 1m1s: must be 50ms to 1m`},
	{"Envoy buffers next to nothing", "xds:\n  gateway:\n    body_limit: 1023KiB",
		`test.yaml:3: xds.gateway.body_limit: 1023KiB: must be 1MiB to 1GiB`},
	{"Envoy buffers more than a gibibyte", "xds:\n  gateway:\n    body_limit: 1025MiB",
		`test.yaml:3: xds.gateway.body_limit: 1025MiB: must be 1MiB to 1GiB`},
	{"usage by a filter that there is not", "xds:\n  gateway:\n    usage: lua",
		`test.yaml:3: xds.gateway.usage: "lua": must be "metadata", "ai" or "none"`},
	{"keys and tokens at once",
		"xds:\n  gateway:\n    api_keys_file: DIR/keys.yaml\n    jwt: {issuer: https://id, jwks_file: DIR/jwks.json}",
		`test.yaml:4: xds.gateway.jwt: cannot be joined with api_keys_file: both read the authorization header, so nobody could come in`},
	{"a baseline past the keys", "xds:\n  gateway:\n    baseline: 127.0.0.1:8081\n    api_keys_file: DIR/keys.yaml",
		`test.yaml:3: xds.gateway.baseline: "127.0.0.1:8081": must be empty where api_keys_file or jwt is set: nothing guards it`},
	{"a baseline past the tokens",
		"xds:\n  gateway:\n    baseline: 127.0.0.1:8081\n    jwt: {issuer: https://id, jwks_file: DIR/jwks.json}",
		`test.yaml:3: xds.gateway.baseline: "127.0.0.1:8081": must be empty where api_keys_file or jwt is set: nothing guards it`},
	{"a keys file that is not there", "xds:\n  gateway:\n    api_keys_file: DIR/missing.yaml",
		`test.yaml:3: xds.gateway.api_keys_file: "DIR/missing.yaml": open DIR/missing.yaml: no such file or directory`},
	{"a keys file that is a list", "xds:\n  gateway:\n    api_keys_file: DIR/list.yaml",
		"test.yaml:3: xds.gateway.api_keys_file: \"DIR/list.yaml\": DIR/list.yaml: " +
			"must be YAML with a line `client: key` for each client"},
	{"a keys file with a key that can be guessed", "xds:\n  gateway:\n    api_keys_file: DIR/short.yaml",
		`test.yaml:3: xds.gateway.api_keys_file: "DIR/short.yaml": DIR/short.yaml: ` +
			`entry 2 must be a client's name and a key of at least 8 characters in quotes, both of printable characters without spaces`},
	{"a keys file with a key that is a number", "xds:\n  gateway:\n    api_keys_file: DIR/number.yaml",
		`test.yaml:3: xds.gateway.api_keys_file: "DIR/number.yaml": DIR/number.yaml: ` +
			`entry 1: the key must not be a number, which YAML readers write differently`},
	{"a keys file that lets nobody in", "xds:\n  gateway:\n    api_keys_file: DIR/nobody.yaml",
		`test.yaml:3: xds.gateway.api_keys_file: "DIR/nobody.yaml": DIR/nobody.yaml: holds no keys, so that nobody could come in`},
	{"tokens of no issuer", "xds:\n  gateway:\n    jwt:\n      issuer: ''\n      jwks_file: DIR/jwks.json",
		`test.yaml:4: xds.gateway.jwt.issuer: "": must be the issuer of the tokens`},
	{"a key set that is not there", "xds:\n  gateway:\n    jwt:\n      issuer: https://id\n      jwks_file: DIR/missing.json",
		`test.yaml:5: xds.gateway.jwt.jwks_file: "DIR/missing.json": must be a file that can be read`},
	{"a rate of no requests",
		"xds:\n  gateway:\n    api_keys_file: DIR/keys.yaml\n    rate_limit:\n      requests: 0\n      per: 1s",
		`test.yaml:5: xds.gateway.rate_limit.requests: 0: must be above 0`},
	{"a rate over no time",
		"xds:\n  gateway:\n    api_keys_file: DIR/keys.yaml\n    rate_limit:\n      requests: 1\n      per: 49ms",
		`test.yaml:6: xds.gateway.rate_limit.per: 49ms: must be at least 50ms`},
	{"a rate per client, of clients without names", "xds:\n  gateway:\n    rate_limit: {requests: 1, per: 1s}",
		`test.yaml:3: xds.gateway.rate_limit: needs api_keys_file or jwt to tell clients apart`},

	{"answers that full duplex cannot ask for", "xds:\n  gateway:\n    body_mode: FULL_DUPLEX_STREAMED\nwarm:\n  speculative_prefill: true",
		`test.yaml:5: warm.speculative_prefill: true: needs xds.gateway.body_mode BUFFERED: in the other mode Envoy cannot be asked for the bodies of single answers`},

	// admin, log, runtime, replica
	{"the operator's side on a socket", "admin:\n  listen: unix:///run/attache.sock",
		`test.yaml:2: admin.listen: "unix:///run/attache.sock": must be host:port, such as "127.0.0.1:9902" or ":9902"`},
	{"a dashboard that is never still", "admin:\n  refresh: 249ms",
		`test.yaml:2: admin.refresh: 249ms: must be 250ms to 1m`},
	{"a dashboard that stands still", "admin:\n  refresh: 61s",
		`test.yaml:2: admin.refresh: 1m1s: must be 250ms to 1m`},
	{"a negative number of dashboards", "admin:\n  max_viewers: -1",
		`test.yaml:2: admin.max_viewers: -1: must be 0 to 1000 viewers`},
	{"more dashboards than operators", "admin:\n  max_viewers: 1001",
		`test.yaml:2: admin.max_viewers: 1001: must be 0 to 1000 viewers`},
	{"a log level in capitals", "log:\n  level: INFO",
		`test.yaml:2: log.level: "INFO": must be "debug", "info", "warn" or "error"`},
	{"a log format that we do not write", "log:\n  format: logfmt",
		`test.yaml:2: log.format: "logfmt": must be "text" or "json"`},
	{"a collector that never stops", "runtime:\n  gc_percent: 9",
		`test.yaml:2: runtime.gc_percent: 9: must be 10 to 10000 percent`},
	{"a collector that never starts", "runtime:\n  gc_percent: 10001",
		`test.yaml:2: runtime.gc_percent: 10001: must be 10 to 10000 percent`},
	{"a replica's name with a dot", "replica: attache-0.example",
		`test.yaml:1: replica: "attache-0.example": must have no dots and no spaces`},
	{"a replica's name with a space", "replica: attache 0",
		`test.yaml:1: replica: "attache 0": must have no dots and no spaces`},
}

// writeFiles makes a folder with the files that configurations name.
func writeFiles(t *testing.T) string {
	t.Helper()
	dir, pair := t.TempDir(), certificate()
	for name, text := range map[string]string{
		"cert.pem":    pair.cert,
		"key.pem":     pair.key,
		"jwks.json":   `{"keys": []}`,
		"keys.yaml":   "acme: long-enough\n",
		"list.yaml":   "- acme\n",
		"token":       "15-characters-x\n",
		"short.yaml":  "acme: long-enough\nevil: short\n",
		"number.yaml": "acme: '0123456789'\n",
		"nobody.yaml": "# acme: long-enough\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// certificate is a self-signed pair, made once.
var certificate = sync.OnceValue(func() (pair struct{ cert, key string }) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(nil, template, template, public, private)
	if err != nil {
		panic(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		panic(err)
	}
	pair.cert = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	pair.key = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	return pair
})

func TestEveryRuleHasItsMessage(t *testing.T) {
	dir := writeFiles(t)
	for _, c := range mistakes {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("test.yaml", []byte(strings.ReplaceAll(c.text, "DIR", dir)))
			want := strings.ReplaceAll(c.want, "DIR", dir)
			if err == nil || err.Error() != want {
				t.Errorf("error:\n%v\nwant:\n%s", err, want)
			}
		})
	}
}

// policies are the names of all policies of the scoring.
const policies = "time, dynamo, weighted, lmetric, token-load, sticky, least-load, power-of-two, chwbl, session, round-robin, random, " +
	"sglang-cache-aware, aibrix-prefix, blend-3-2-2, preble"

// anything are the keys that may hold any value of their type. A key that is neither here nor in mistakes is one whose
// rule, or whose lack of one, nobody has thought about.
var anything = []string{
	"pools.workers_file",                    // may come later; watched
	"pools.scoring",                         // has the rules of router.scoring
	"pools.prompt.model_dir",                // is looked at when the process starts
	"pools.prompt.tokenize",                 // true or false
	"pools.events.topic",                    // empty: all
	"pools.events.pull",                     // true or false
	"router.auto",                           // true or false
	"router.learnt_dir",                     // may come later
	"router.queue.classes.fair",             // true or false
	"router.queue.evict",                    // true or false
	"router.snapshot.dir",                   // may come later
	"router.snapshot.shared",                // true or false
	"redis.tls.enabled",                     // true or false
	"replicas.direct.insecure",              // true or false
	"replicas.direct.tls.server_name",       // empty: the host that is connected to
	"extproc.answer_models",                 // true or false
	"extproc.include_usage",                 // true or false
	"extproc.record_panics",                 // is made when it is needed
	"extproc.client_header",                 // empty: no tenant
	"extproc.hints.strict",                  // true or false
	"tracing.insecure",                      // true or false
	"warm.keepalive",                        // true or false
	"xds.gateway.fail_open",                 // true or false
	"xds.gateway.tls.cert",                  // empty: without
	"xds.gateway.jwt.client_claim",          // empty: sub
	"pools.discovery.dns.srv",               // true or false
	"pools.discovery.kubernetes.pod_labels", // true or false
	"pools.discovery.kubernetes.kubeconfig", // is looked at when the process starts
	"xds.gateway.rate_limit.clients",
	"router.scoring.dynamo.track_prefill_tokens",
	"extproc.hints.forward_priority",
	"xds.gateway.hard_body_limit", // 0: none
	"admin.pprof",                 // true or false
	"runtime.memory_limit",        // 0: by the control group
}

func TestEveryKeyHasARule(t *testing.T) {
	index := regexp.MustCompile(`\[\d+\]`)
	ruled, texts := map[string]bool{}, map[string]bool{}
	for _, c := range mistakes {
		if texts[c.text] {
			t.Errorf("%s: its text is in the table twice", c.name)
		}
		texts[c.text] = true
		path := index.ReplaceAllString(strings.Split(c.want, ": ")[1], "")
		for ; path != ""; path = path[:max(strings.LastIndexByte(path, '.'), 0)] {
			ruled[path] = true
		}
	}
	for _, key := range keys(reflect.TypeFor[Config](), "") {
		within := slices.ContainsFunc(anything, func(a string) bool { return key == a || strings.HasPrefix(key, a+".") })
		switch {
		case !ruled[key] && !within:
			t.Errorf("%s: no case breaks its rule, and it is not said to take anything", key)
		case ruled[key] && within && !strings.HasPrefix(key, "pools.scoring."):
			t.Errorf("%s: has a rule, but is said to take anything", key)
		}
	}
}

// keys are the paths of all keys that hold a value, without the indices of lists.
func keys(t reflect.Type, path string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return []string{path}
	}
	var all []string
	for i := range t.NumField() {
		key, options, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if key == "-" {
			continue // not in files
		}
		below := path
		if options != "inline" {
			below = strings.TrimPrefix(path+"."+key, ".")
		}
		all = append(all, keys(t.Field(i).Type, below)...)
	}
	return all
}

func TestSeveralMistakesAreReportedTogether(t *testing.T) {
	for _, c := range []mistake{
		{"in two sections, in the order of the documentation", "log:\n  level: loud\nrouter:\n  alternatives: 0",
			"test.yaml:4: router.alternatives: 0: must be 1 to 16 workers\n" +
				`test.yaml:2: log.level: "loud": must be "debug", "info", "warn" or "error"`},
		{"in one section", "router:\n  recent: -1\n  max_in_flight: -2",
			"test.yaml:3: router.max_in_flight: -2: must be 0 (no limit) or more requests\n" +
				"test.yaml:2: router.recent: -1: must be 0 to 10000 decisions"},
		{"in two pools", "pools:\n  - name: a\n    workers: [x]\n    models: [m]\n  - name: b\n    workers: [y]\n    models: [n]",
			"test.yaml:3: pools[0].workers[0]: \"x\": must be host:port, such as 10.0.0.1:8000 or [fd00::1]:8000\n" +
				`test.yaml:6: pools[1].workers[0]: "y": must be host:port, such as 10.0.0.1:8000 or [fd00::1]:8000`},
		{"one mistake that breaks two rules", "xds:\n  gateway:\n    max_message_timeout: 2h",
			"test.yaml:3: xds.gateway.max_message_timeout: 2h0m0s: must be at least message_timeout and at most 1h\n" +
				"test.yaml:2: xds.gateway.idle_timeout: 10m0s: must exceed max_message_timeout, or waiting requests are ended"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("test.yaml", []byte(c.text))
			if err == nil || err.Error() != c.want {
				t.Errorf("error:\n%v\nwant:\n%s", err, c.want)
			}
		})
	}
}

// yamlMistakes are texts that do not become a configuration at all.
var yamlMistakes = []mistake{
	{"an unknown section", "routing:\n  recent: 1", `test.yaml:1: routing: is not a setting; here are admin, extproc, log, pools, redis, replica, replicas, router, runtime, tracing, warm, workers, xds`},
	{"a misspelt key", "router:\n  recent: 1\n  alternative: 3", `test.yaml:3: router.alternative: is not a setting; did you mean "alternatives"?`},
	{"a misspelt key of a pool", "pools:\n  - name: a\n    model: [m]", `test.yaml:3: pools[0].model: is not a setting; did you mean "models"?`},
	{"a misspelt key of the scoring", "router:\n  scoring:\n    alfa: 1", `test.yaml:3: router.scoring.alfa: is not a setting; did you mean "alpha"?`},
	{"a misspelt key of a pool's scoring", "pools:\n  - name: a\n    scoring:\n      alfa: 1",
		`test.yaml:4: pools[0].scoring.alfa: is not a setting; did you mean "alpha"?`},
	{"a key that lost its indentation", "router:\nrecent: 1", `test.yaml:2: recent: is not a setting; here are admin, extproc, log, pools, redis, replica, replicas, router, runtime, tracing, warm, workers, xds`},
	{"two misspelt keys", "replca: a\nlog:\n  lvel: info", "test.yaml:1: replca: is not a setting; did you mean \"replica\"?\n" +
		`test.yaml:3: log.lvel: is not a setting; did you mean "level"?`},
	{"a number for a section", "router: 5", `test.yaml:1: router: must be a section: lines "setting: value", indented, with a space behind the colon`},
	{"a list for a section", "router: [recent]", `test.yaml:1: router: must be a section: lines "setting: value", indented, with a space behind the colon`},
	{"a section for a list", "pools:\n  name: a", `test.yaml:1: pools: must be a list: lines that begin with "- ", or [a, b]`},
	{"a number for a pool", "pools:\n  - 5", `test.yaml:2: pools[0]: must be a section: lines "setting: value", indented, with a space behind the colon`},
	{"nothing for a pool", "pools:\n  -", `test.yaml:2: pools[0]: must be a section: lines "setting: value", indented, with a space behind the colon`},
	{"a text for a list", "pools:\n  - name: a\n    models: llama",
		`test.yaml:3: pools[0].models: must be a list: lines that begin with "- ", or [a, b]`},
	{"a list for names and values", "pools:\n  - name: a\n    aliases: [a]", `test.yaml:3: pools[0].aliases: must be lines "name: value", indented`},
	{"a text for the whole file", "attache", `test.yaml: the file: must be a section: lines "setting: value", indented, with a space behind the colon`},
	{"a key without a space after its colon", "router:\n  recent:1", `test.yaml:1: router: must be a section: lines "setting: value", indented, with a space behind the colon`},
	{"indentation by a tab", "router:\n\trecent: 1", "test.yaml:2:1: YAML is indented by spaces, not by tabs"},
	{"one key twice", "router:\n  recent: 1\n  recent: 2", `test.yaml:3:3: mapping key "recent" already defined at [2:3]`},
	{"one section twice", "log:\n  level: info\nlog:\n  format: json", `test.yaml:3:1: mapping key "log" already defined at [1:1]`},
	{"two colons in one line", "replica: a: b", `test.yaml:1:10: mapping value is not allowed in this context`},
	{"a quote that does not end", "replica: \"a", `test.yaml:1:10: could not find end character of double-quoted text`},
	{"a brace that does not close", "router: {recent: 1", `test.yaml:1:9: could not find flow mapping end token '}'`},
	{"an anchor that is not there", "router: *common", `test.yaml:1:10: could not find alias "common"`},
	{"a key outside of its section", "router:\n    recent: 1\n  alternatives: 1", `test.yaml:3:3: value is not allowed in this context`},
	{"a second document", "replica: a\n---\nreplica: b", `test.yaml: must be one YAML document; a line "---" or "..." begins a second one`},
	{"another encoding", "replica: \xff", `test.yaml: must be a text in UTF-8`},

	{"a duration in words", "router:\n  retry_after: soon", `test.yaml:2: router.retry_after: "soon": must be a duration such as 250ms, 2s or 1m30s`},
	{"a duration in days", "router:\n  index:\n    ttl: 1d", `test.yaml:3: router.index.ttl: "1d": must be a duration such as 250ms, 2s or 1m30s`},
	{"a duration without a unit", "router:\n  retry_after: 5", `test.yaml:2: router.retry_after: "5": must be a duration such as 250ms, 2s or 1m30s`},
	{"a list for a duration", "router:\n  retry_after: [1s]", `test.yaml:2: router.retry_after: "": must be a duration such as 250ms, 2s or 1m30s`},
	{"a decimal unit", "extproc:\n  max_body: 16MB", `test.yaml:2: extproc.max_body: "16MB": must be a size such as 65536, 512KiB, 16MiB or 1GiB`},
	{"a fraction of a unit", "extproc:\n  max_body: 1.5GiB",
		`test.yaml:2: extproc.max_body: "1.5GiB": must be a size such as 65536, 512KiB, 16MiB or 1GiB`},
	{"a negative size", "extproc:\n  max_body: -1", `test.yaml:2: extproc.max_body: "-1": must be a size such as 65536, 512KiB, 16MiB or 1GiB`},
	{"a size beyond all memory", "runtime:\n  memory_limit: 99999999999GiB",
		`test.yaml:2: runtime.memory_limit: "99999999999GiB": must be a size such as 65536, 512KiB, 16MiB or 1GiB`},
	{"a word for a number", "router:\n  alternatives: three", `test.yaml:2: router.alternatives: "three": must be a whole number`},
	{"a number in quotes", "router:\n  alternatives: '3'", `test.yaml:2: router.alternatives: "3": must be a whole number`},
	{"a fraction of a worker", "router:\n  alternatives: 1.5", `test.yaml:2: router.alternatives: 1.5: must be a whole number`},
	{"a section for a number", "router:\n  alternatives: {of: 3}", `test.yaml:2: router.alternatives: must be a whole number`},
	{"a negative number of requests", "xds:\n  gateway:\n    rate_limit:\n      requests: -5",
		`test.yaml:4: xds.gateway.rate_limit.requests: -5: must be a whole number from 0 to 4294967295`},
	{"a number that no computer counts to", "router:\n  recent: 18446744073709551615",
		`test.yaml:2: router.recent: 18446744073709551615: must be a whole number from -9223372036854775808 to 9223372036854775807`},
	{"a word for a fraction", "router:\n  scoring:\n    alpha: much", `test.yaml:3: router.scoring.alpha: "much": must be a number`},
	{"yes for true", "extproc:\n  answer_models: yes", `test.yaml:2: extproc.answer_models: "yes": must be true or false`},
	{"a version that YAML takes for a number", "xds:\n  gateway:\n    envoy_version: 1.40",
		`test.yaml:3: xds.gateway.envoy_version: must be a text; put it in quotes: "1.40"`},
	{"a tag", "replica: !!str a", `test.yaml:1: replica: must have no YAML tag (a word that begins with "!")`},
	{"a list for a text", "replica: [a]", `test.yaml:1: replica: must be a text`},
}

func TestYAMLMistakes(t *testing.T) {
	for _, c := range yamlMistakes {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("test.yaml", []byte(c.text))
			if err == nil || err.Error() != c.want {
				t.Errorf("error:\n%v\nwant:\n%s", err, c.want)
			}
		})
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "attache.yaml")
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file that is not there: error %v does not name %s", err, path)
	}
	if err := os.WriteFile(path, []byte("router:\n  recent: -1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := path + ":2: router.recent: -1: must be 0 to 10000 decisions"
	if _, err := Load(path); err == nil || err.Error() != want {
		t.Errorf("error:\n%v\nwant:\n%s", err, want)
	}
}

func TestDefaultsAreValid(t *testing.T) {
	for _, c := range []struct {
		name string
		text []byte
	}{
		{"no text", nil},
		{"an empty file", []byte{}},
		{"empty lines", []byte(" \n\n")},
		{"an empty mapping", []byte("{}")},
		{"only comments", []byte("# ours\n\n# none yet\n")},
		{"only the beginning of a document", []byte("---\n")},
		{"null", []byte("null\n")},
		{"settings without values", []byte("replica:\nrouter:\n  index:\n    ttl: ~\n  recent: null\n")},
		{"sections without keys", []byte("pools:\nrouter:\nxds:\n  gateway:\n")},
		{"a section whose keys are comments", []byte("# ours\nrouter:\n  # recent: 5\nlog:\n  level: info # as it is\n")},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse("test.yaml", c.text)
			if err != nil {
				t.Fatal(err)
			}
			if want := Default(); !reflect.DeepEqual(*got, want) {
				t.Errorf("configuration:\n%s\nwant the default:\n%s", got.YAML(), want.YAML())
			}
		})
	}
}

// TestForms: what YAML and its writers make of a value, and what it is taken for.
func TestForms(t *testing.T) {
	for _, c := range []struct {
		name, text string
		got        func(*Config) any
		want       any
	}{
		{"a mark of the encoding, as Windows writes it", "\ufeffreplica: a", func(c *Config) any { return c.Replica }, "a"},
		{"a name of digits", "replica: 7", func(c *Config) any { return c.Replica }, "7"},
		{"a duration of nothing", "workers:\n  ack_timeout: 0", func(c *Config) any { return c.Workers.AckTimeout }, time.Duration(0)},
		{"a duration in quotes", "workers:\n  ack_timeout: '1m30s'", func(c *Config) any { return c.Workers.AckTimeout }, 90 * time.Second},
		{"a size in bytes", "extproc:\n  max_body: 65536", func(c *Config) any { return c.ExtProc.MaxBody }, 64 * field.KiB},
		{"a hexadecimal number", "router:\n  recent: 0x10", func(c *Config) any { return c.Router.Recent }, 16},
		{"a whole number for a fraction", "router:\n  scoring:\n    alpha: 1", func(c *Config) any { return c.Router.Scoring.Alpha }, 1.0},
		{"a small fraction", "router:\n  scoring:\n    alpha: 1e-9", func(c *Config) any { return c.Router.Scoring.Alpha }, 1e-9},
		{"an anchor", "workers:\n  health: {interval: &often 2s, timeout: *often}", func(c *Config) any { return c.Workers.Health.Timeout }, 2 * time.Second},
		{"a block of text", "replica: |-\n  a\n", func(c *Config) any { return c.Replica }, "a"},
	} {
		c2, err := Parse("test.yaml", []byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := c.got(c2); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// One key that is set must not lose its neighbours' defaults, at any depth.
func TestOtherKeysKeepTheirDefaults(t *testing.T) {
	got, err := Parse("test.yaml", []byte(`
pools:
  - name: a
    scoring:
      policy: random
workers:
  health:
    failures: 9
router:
  scoring:
    speed:
      chunk_tokens: 512
xds:
  gateway:
    node_id: edge
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	own := scoring.DefaultConfig()
	own.Policy = "random"
	want.Pools[0].Name, want.Pools[0].Scoring = "a", &own
	want.Workers.Health.Failures = 9
	want.Router.Scoring.Speed.ChunkTokens = 512
	want.XDS.Gateway.NodeID = "edge"
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("configuration:\n%s\nwant:\n%s", got.YAML(), want.YAML())
	}
}

func TestYAMLRoundTrip(t *testing.T) {
	dir := writeFiles(t)
	file := func(name string) string { return filepath.Join(dir, name) }

	changed := Default()
	changed.Replica = "0123" // a text that looks like a number
	// A pool's own scoring is read over defaults; what it sets to zero must stay zero.
	own := scoring.DefaultConfig()
	own.Policy, own.Alpha, own.Dynamo.PrefillLoadScale = "dynamo", 0, 16.5
	first := &changed.Pools[0]
	first.Name, first.Scoring, first.Engine = "null", &own, "vllm"
	first.Models = []string{"*", "1.40", "true", "a: b", "# c", "- d", "~", "'", `"`, " e ", "[f]", "{g}", "é", "@h", "!i", "&j", "%k"}
	first.Aliases = map[string]string{"1e3": "0x10", "yes": "null", "a:b/c-4.1": "m"}
	first.Workers, first.WorkersFile = []string{"10.0.0.1:8000", "[fd00::1]:8000"}, "workers.yaml"
	first.Discovery = Discovery{
		DNS:        []dns.Config{{Name: "e.svc.", Port: 8000, Interval: 1500 * time.Millisecond, Family: dns.IPv6, Labels: map[string]string{"1": "true"}}},
		Kubernetes: []kubernetes.Config{{Selector: "a in (b,c)", PortName: "rank-*", PodLabels: true, Labels: map[string]string{"a": "null"}}},
	}
	changed.Pools = append(changed.Pools, Pool{Engine: "auto", Workers: []string{}})
	second := &changed.Pools[1]
	second.Name, second.Models, second.Aliases = "second", []string{"qwen"}, map[string]string{}
	second.Discovery = Discovery{DNS: []dns.Config{}, Kubernetes: []kubernetes.Config{}}
	changed.Workers.AckTimeout = 0
	changed.Router.RetryAfter = 1500 * time.Millisecond
	changed.Router.Scoring.Temperature = 1e-9
	changed.ExtProc.TLS = &extproc.TLS{Cert: file("cert.pem"), Key: file("key.pem")}
	changed.ExtProc.MaxBody, changed.ExtProc.IncludeUsage = 1500*field.KiB+1, true
	changed.ExtProc.Hints = hints.Config{Trust: []string{"all"}, Strict: true, ForwardPriority: true}
	changed.XDS.Gateway.ExtProc = []string{"unix:///run/attache.sock"}
	changed.XDS.Gateway.EnvoyVersion, changed.XDS.Gateway.FailOpen = "1.38", false
	changed.XDS.Gateway.APIKeysFile = file("keys.yaml")
	changed.XDS.Gateway.RateLimit = &xds.RateLimit{Requests: 4_000_000_000, Per: time.Hour, Clients: map[string]uint32{"acme": 0}}
	changed.Runtime.MemoryLimit = 3 * field.GiB

	// Keys and tokens exclude each other.
	tokens := changed
	tokens.ExtProc.Hints.Trust = []string{}
	tokens.XDS.Gateway.APIKeysFile = ""
	tokens.XDS.Gateway.JWT = &xds.JWT{Issuer: "https://id", JWKSFile: file("jwks.json"), ClientClaim: "azp"}

	// In an empty configuration lists are nil; read back they are empty, which means the same.
	plain := Default()
	plain.Pools[0].Models, plain.Pools[0].Aliases, plain.Pools[0].Workers = []string{}, map[string]string{}, []string{}
	plain.Pools[0].Discovery = Discovery{DNS: []dns.Config{}, Kubernetes: []kubernetes.Config{}}
	plain.XDS.Gateway.ExtProc = []string{}
	for _, c := range []*Config{&plain, &changed, &tokens} {
		c.Router.Queue.Classes, c.Router.Queue.Buckets = []queue.ClassConfig{}, []queue.Bucket{}
		c.XDS.Gateway.XDS, c.Replicas.Direct.Peers = []string{}, []string{}
	}
	changed.Router.Queue.Classes = []queue.ClassConfig{queue.DefaultClass()}
	changed.Router.Queue.Buckets = []queue.Bucket{{Class: "default"}}

	for _, c := range []struct {
		name string
		want Config
	}{{"the default", plain}, {"a changed one", changed}, {"one with tokens", tokens}} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse("test.yaml", []byte(c.want.YAML()))
			if err != nil {
				t.Fatalf("%v\nof:\n%s", err, c.want.YAML())
			}
			if !reflect.DeepEqual(*got, c.want) {
				t.Errorf("configuration:\n%s\nwant:\n%s", got.YAML(), c.want.YAML())
			}
		})
	}
	byDefault := Default()
	if byDefault.YAML() != plain.YAML() {
		t.Errorf("lists that are not set are written as:\n%s\nwant:\n%s", byDefault.YAML(), plain.YAML())
	}
}

func TestSecretsStayOut(t *testing.T) {
	const secret = "sk-do-not-show"
	path := filepath.Join(t.TempDir(), "keys.yaml")
	text := "replica: a\nxds:\n  gateway:\n    api_keys_file: " + path + "\n"
	write := func(t *testing.T, keys string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(keys), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("the configuration names the file only", func(t *testing.T) {
		write(t, "acme: "+secret+"\n")
		c, err := Parse("test.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if out := c.YAML(); strings.Contains(out, secret) || !strings.Contains(out, "api_keys_file: "+path) {
			t.Errorf("the configuration is written as:\n%s", out)
		}
	})

	for _, c := range []struct{ name, keys string }{
		{"keys without clients", secret + "\n"},
		{"a list of keys", "- " + secret + "\n"},
		{"a list of mappings", "- acme: " + secret + "\n"},
		{"a quote that does not end", "acme: \"" + secret + "\n"},
		{"a tab", "acme:\n\tkey: " + secret + "\n"},
		{"two colons", "acme: key: " + secret + "\n"},
		{"one client twice", "acme: " + secret + "\nacme: " + secret + "-2\n"},
		{"a key below a key", "acme:\n  key: " + secret + "\n"},
		{"the key before its client, which is too short", secret + ": acme\n"},
		{"a client without a name", "'': " + secret + "\n"},
		{"an anchor", "acme: *" + secret + "\n"},
		{"a key of two words", "acme: " + secret + " either\n"},
		{"a tag", "acme: !!int " + secret + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, c.keys)
			_, err := Parse("test.yaml", []byte(text))
			if err == nil {
				t.Fatal("the keys file was accepted")
			}
			if strings.Contains(err.Error(), secret) || !strings.HasPrefix(err.Error(), "test.yaml:4: xds.gateway.api_keys_file: ") {
				t.Errorf("error: %v", err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, table := range [][]mistake{mistakes, yamlMistakes} {
		for _, c := range table {
			f.Add([]byte(c.text))
		}
	}
	byDefault := Default()
	f.Add([]byte(byDefault.YAML()))
	for _, text := range []string{
		"", "# ours", "---", "...", "null", "{}", "[]", "? a", "%YAML 1.3", "!!binary x", "router: !!str x", "<<: {replica: a}",
		"replica: &a [*a]", "router: &r {scoring: *r}", "replica: a\n---\nreplica: b", "\xff\xfe", "\ufeffreplica: a",
		"replica: a\r\nlog:\r\n  level: warn\r\n", "replica: |\n  a\n", "replica: >-\n  a\n", "router: {recent: 0x10, alternatives: 1e1}",
		"pools: [null]", "pools: [{name: a, aliases: {a.b: c, 'd[0]': e, \"f'g\": h}}]",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4<<10 {
			t.Skip("longer than any of our files, and slow")
		}
		c, err := Parse("fuzz.yaml", text)
		if err != nil {
			return
		}
		// The YAML library writes control characters in texts, and the key "<<", so that it does not read them back. What JSON
		// needs to escape has one of them; no file that means something has.
		if escaped, err := json.Marshal(c); err != nil || bytes.ContainsRune(escaped, '\\') {
			t.Skip("has texts that cannot be written")
		}
		if _, err := Parse("again.yaml", []byte(c.YAML())); err != nil {
			t.Errorf("%v\nof:\n%s\nwhich was read from:\n%s", err, c.YAML(), text)
		}
	})
}
