package events

import (
	"time"

	"attache/indexer/events/zmtp"
	"attache/indexer/runs"
	"attache/internal/field"
)

// Config says how the engines' events are followed.
type Config struct {
	// ReplayTimeout is how long an engine may take to begin to answer, or to go on answering, when it is asked for batches
	// that were missed. Requests to the worker are routed meanwhile. Too short a value gives a loaded engine's blocks up.
	ReplayTimeout time.Duration `yaml:"replay_timeout"`
	// VerifyInterval is how long an engine may be silent before its replay socket is asked whether anything was missed: the
	// last batches before a pause can be lost without a gap showing. 0: never.
	VerifyInterval time.Duration `yaml:"verify_interval"`
	// Grace is how long what is known of a worker still counts when its stream breaks off, or while a gap is being closed.
	// After it the worker is routed by what is remembered of our own decisions.
	Grace time.Duration `yaml:"grace"`
	// HalfLife is how fast what is known loses weight while the stream is broken off: after this time it counts half. 0: it
	// keeps its weight until grace is over.
	HalfLife time.Duration `yaml:"half_life"`
	// Speculation is how long after its end a request's prompt still counts as held by its worker though the engine has not said so:
	// a burst of prompts that begin alike lands together. While a request runs its prompt counts anyway. It should be above the
	// time that events take to arrive, and well below the time in which an engine's cache is turned over.
	Speculation time.Duration `yaml:"speculation"`
	// SilentRequests is how many requests with new blocks a worker may finish in a row without a single event before its stream
	// counts as silent: some engines accept the setting and publish nothing. 0: as many as it likes.
	SilentRequests int `yaml:"silent_requests"`
	// ReadyWait is how long readiness waits, after the start, for the replays of the workers that are there.
	ReadyWait time.Duration `yaml:"ready_wait"`
	// HostCredit, DiskCredit and RemoteCredit are what a block in main memory, on disk or in a shared store is worth, of one on
	// the device: fetching it takes an engine less than computing it, but not nothing. 0 to 1.
	HostCredit float64 `yaml:"host_credit"`
	// DiskCredit is the worth of a block on disk.
	DiskCredit float64 `yaml:"disk_credit"`
	// RemoteCredit is the worth of a block in a store that engines share.
	RemoteCredit float64 `yaml:"remote_credit"`
	// Index bounds what is known, for each pool.
	Index runs.Config `yaml:"index"`
	// Socket is what is expected of the engines' sockets.
	Socket zmtp.Config `yaml:"socket"`
}

// DefaultConfig fits engines in one network.
func DefaultConfig() Config {
	return Config{
		ReplayTimeout: 5 * time.Second, VerifyInterval: 10 * time.Second, Grace: time.Second, HalfLife: 2 * time.Second,
		Speculation: 100 * time.Millisecond, SilentRequests: 8, ReadyWait: 10 * time.Second,
		HostCredit: .75, DiskCredit: .25, RemoteCredit: .25,
		Index: runs.DefaultConfig(), Socket: zmtp.DefaultConfig(),
	}
}

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	check.Check(c.ReplayTimeout > 0, "replay_timeout", c.ReplayTimeout, "must be above 0")
	check.Check(c.VerifyInterval == 0 || c.VerifyInterval >= 100*time.Millisecond, "verify_interval", c.VerifyInterval, "must be 0 (never) or at least 100ms")
	check.Check(c.Grace >= 0, "grace", c.Grace, "must not be negative")
	check.Check(c.HalfLife >= 0, "half_life", c.HalfLife, "must not be negative")
	check.Check(c.Speculation >= 0 && c.Speculation <= time.Hour, "speculation", c.Speculation, "must be 0 to 1h")
	check.Check(c.SilentRequests >= 0, "silent_requests", c.SilentRequests, "must be 0 (no limit) or more requests")
	check.Check(c.ReadyWait >= 0, "ready_wait", c.ReadyWait, "must not be negative")
	for _, credit := range []struct {
		name  string
		value float64
	}{{"host_credit", c.HostCredit}, {"disk_credit", c.DiskCredit}, {"remote_credit", c.RemoteCredit}} {
		check.Check(credit.value >= 0 && credit.value <= 1, credit.name, credit.value, "must be 0 to 1")
	}
	check.Under("index", c.Index.Validate())
	check.Under("socket", c.Socket.Validate())
	return check.Err()
}

// PoolConfig says where the workers of a pool publish their events. A worker of a workers file may say it for itself.
type PoolConfig struct {
	// Mode is "auto" (events where a port is given here, by a workers file, or by the engine itself, as vLLM 0.32 and SGLang do) or
	// "off" (none are followed; our own decisions are remembered instead).
	Mode string `yaml:"mode"`
	// Bind is where engines dial and publish, in place of ports of theirs: vLLM's and SGLang's do so where their endpoint names
	// a host, as in llm-d's charts: "tcp://*:5557". Topics tell whose the events are, kv@WORKER@MODEL with the worker's name,
	// address or host, else the engine's own address does. Empty: attache dials.
	Bind string `yaml:"bind"`
	// Port is where engines publish: vLLM's --kv-events-config '{"endpoint":"tcp://*:5557"}'. Data-parallel rank n publishes at
	// this port plus n. 0: not known.
	Port int `yaml:"port"`
	// ReplayPort is where engines answer for what was missed ("replay_endpoint" of vLLM and SGLang). Without it every gap costs all
	// that is known of a worker. It must be at least as far from port as there are ranks. 0: there is none.
	ReplayPort int `yaml:"replay_port"`
	// Topic is the beginning of the topics that are wanted. Empty: all.
	Topic string `yaml:"topic"`
	// Pull asks TensorRT-LLM's workers for their events over HTTP (POST /kv_cache_events). The engine gives every event to one
	// asker only: no other may ask, and no second replica of attache may have this set.
	Pull bool `yaml:"pull"`
}

// The modes of a pool.
const (
	modeAuto = "auto"
	modeOff  = "off"
)

// Validate reports every field that breaks its rule.
func (c PoolConfig) Validate() error {
	var check field.Checker
	check.Check(c.Mode == "" || c.Mode == modeAuto || c.Mode == modeOff, "mode", c.Mode, `must be "auto" or "off"`)
	if c.Bind != "" {
		if err := zmtp.CheckEndpoint(c.Bind, true); err != nil {
			check.Under("bind", err)
		}
		check.Check(c.Port == 0, "port", c.Port, "must be 0 where bind is set: engines publish at the one or the other")
	}
	check.Check(c.Port >= 0 && c.Port <= 65535, "port", c.Port, "must be 0 (not known) or a port")
	check.Check(c.ReplayPort >= 0 && c.ReplayPort <= 65535, "replay_port", c.ReplayPort, "must be 0 (none) or a port")
	check.Check(c.ReplayPort == 0 || c.ReplayPort != c.Port, "replay_port", c.ReplayPort, "must differ from port")
	return check.Err()
}
