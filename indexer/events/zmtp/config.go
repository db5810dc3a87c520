package zmtp

import (
	"time"

	"attache/internal/field"
)

// Config is what a socket expects of its peers. DefaultConfig is a start; the zero value is not valid.
type Config struct {
	// Timeout is how long a peer may take to be dialled and to shake hands, both together, and to take in what a Sub, a
	// Dealer or a Router writes. Too short a value never reaches a busy peer.
	Timeout time.Duration `yaml:"timeout"`
	// HeartbeatInterval is the silence after which a PING is sent. 0: none is, and a peer that vanished without a word is
	// noticed by the kernel's keep-alive alone, after minutes. libzmq answers PINGs since 4.2; older peers need the 0.
	HeartbeatInterval time.Duration `yaml:"heartbeat_interval"`
	// HeartbeatTimeout is how long after a PING the peer may stay silent before it is given up.
	HeartbeatTimeout time.Duration `yaml:"heartbeat_timeout"`
	// MinPause is the pause before an endpoint is dialled again; it doubles with every failure, less up to half by chance.
	// A connection that lasted longer than the pause brings it back to this.
	MinPause time.Duration `yaml:"min_pause"`
	// MaxPause bounds the doubling: a restarted peer is found this late.
	MaxPause time.Duration `yaml:"max_pause"`
	// MaxFrame is the size of the largest frame, without its header, that is received.
	MaxFrame field.Bytes `yaml:"max_frame"`
	// MaxFrames is how many frames a message may have.
	MaxFrames int `yaml:"max_frames"`
	// MaxMessage is the size of the largest message on the wire: frames, their headers, and commands between them. It
	// bounds the memory of one connection, save for the 256 KiB that are read ahead.
	MaxMessage field.Bytes `yaml:"max_message"`
	// MaxPeers is how many peers a bound socket serves at a time; more are turned away.
	MaxPeers int `yaml:"max_peers"`
}

// DefaultConfig notices a vanished peer within 15 seconds and a restarted one within 10.
func DefaultConfig() Config {
	return Config{
		Timeout:           5 * time.Second,
		HeartbeatInterval: 5 * time.Second,
		HeartbeatTimeout:  10 * time.Second,
		MinPause:          100 * time.Millisecond,
		MaxPause:          10 * time.Second,
		MaxFrame:          32 * field.MiB,
		MaxFrames:         64,
		MaxMessage:        64 * field.MiB,
		MaxPeers:          1024,
	}
}

// maxSize keeps every size an int, also where that has 32 bits.
const maxSize = field.GiB

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	check.Check(c.Timeout > 0, "timeout", c.Timeout, "must be above 0")
	check.Check(c.HeartbeatInterval >= 0, "heartbeat_interval", c.HeartbeatInterval, "must not be negative")
	check.Check(c.HeartbeatTimeout > 0, "heartbeat_timeout", c.HeartbeatTimeout, "must be above 0")
	check.Check(c.MinPause > 0, "min_pause", c.MinPause, "must be above 0")
	check.Check(c.MaxPause >= c.MinPause, "max_pause", c.MaxPause, "must be at least min_pause")
	check.Check(c.MaxFrame > 0 && c.MaxFrame <= maxSize, "max_frame", c.MaxFrame, "must be above 0 and at most 1GiB")
	check.Check(c.MaxFrames > 0, "max_frames", c.MaxFrames, "must be at least 1")
	check.Check(c.MaxMessage > c.MaxFrame && c.MaxMessage <= 2*maxSize-1, "max_message", c.MaxMessage,
		"must be above max_frame and below 2GiB")
	check.Check(c.MaxPeers > 0, "max_peers", c.MaxPeers, "must be at least 1")
	return check.Err()
}

// limits are the caps that a reader holds.
type limits struct {
	frame   int // bytes of a frame's body
	frames  int // of a message
	message int // bytes of a message on the wire
}

func (c Config) limits() limits {
	return limits{frame: int(c.MaxFrame), frames: c.MaxFrames, message: int(c.MaxMessage)}
}
