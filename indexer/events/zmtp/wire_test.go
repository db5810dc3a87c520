package zmtp

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"
)

// TestGoldenBytes pins what goes over the wire. The bytes are written out from RFC 23 and RFC 37.
func TestGoldenBytes(t *testing.T) {
	long := strings.Repeat("61", 256)
	for _, c := range []struct {
		name string
		got  []byte
		want string // hexadecimal, blanks are left out
	}{
		{"greeting", greeting(), "ff 00000000 00000000 7f 03 00 4e554c4c" + strings.Repeat("00", 48)},
		{"READY of a SUB", ready{socket: typeSub}.frame(),
			"04 26 05 5245414459 0b 536f636b65742d54797065 00000003 535542 08 4964656e74697479 00000000"},
		{"short frame", appendFrame(nil, 0, []byte("ab")), "00 02 6162"},
		{"short frame, more", appendFrame(nil, flagMore, nil), "01 00"},
		{"the longest short frame", appendFrame(nil, 0, []byte(strings.Repeat("a", 255))), "00 ff" + long[2:]},
		{"the shortest long frame", appendFrame(nil, 0, []byte(strings.Repeat("a", 256))), "02 0000000000000100" + long},
		{"long frame, more", appendFrame(nil, flagMore, []byte(strings.Repeat("a", 256))), "03 0000000000000100" + long},
		{"message", appendMessage(nil, [][]byte{[]byte("kv"), {}, {7}}), "01 02 6b76 01 00 00 01 07"},
		{"PING", appendCommand(nil, cmdPing, []byte{0, 0}), "04 07 04 50494e47 0000"},
		{"PONG", appendCommand(nil, cmdPong, []byte("ctx")), "04 08 04 504f4e47 637478"},
		{"long command", appendCommand(nil, "A", []byte(strings.Repeat("a", 256))), "06 0000000000000102 01 41" + long},
	} {
		if got, want := hex.EncodeToString(c.got), strings.ReplaceAll(c.want, " ", ""); got != want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, want)
		}
	}
}

func TestReadyIsRead(t *testing.T) {
	for _, c := range []struct {
		name, data string
		want       ready
		err        string
	}{
		{"ours", string(ready{socket: "PUB", identity: "me"}.frame()[8:]), ready{"PUB", "me"}, ""},
		{"names in any case, unknown ones", "\x0bsocket-TYPE\x00\x00\x00\x03PUB\x03X-a\x00\x00\x00\x01b", ready{"PUB", ""}, ""},
		{"nothing", "", ready{}, ""},
		{"no name", "\x00\x00\x00\x00\x00", ready{}, "inside the name"},
		{"cut in a name", "\x0bSocket", ready{}, "inside the name"},
		{"cut in a size", "\x01a\x00\x00\x00", ready{}, "inside the name"},
		{"cut in a value", "\x01a\x00\x00\x00\x02b", ready{}, `inside its property "a"`},
		{"a value of 4 GiB", "\x01a\xff\xff\xff\xffb", ready{}, `inside its property "a"`},
		{"long identity", "\x08Identity\x00\x00\x01\x00" + strings.Repeat("i", 256), ready{}, "an identity of 256 bytes"},
	} {
		got, err := parseReady([]byte(c.data))
		if c.err == "" && (err != nil || got != c.want) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %+v, %v; want %+v, %q", c.name, got, err, c.want, c.err)
		}
	}
}

func TestCommandsAreRead(t *testing.T) {
	for _, c := range []struct {
		body, name, data string
		bad              bool
	}{
		{"\x04PONG", "PONG", "", false},
		{"\x04PING\x00\x01ctx", "PING", "\x00\x01ctx", false},
		{"", "", "", true},
		{"\x00", "", "", true},
		{"\x05PING", "", "", true},
	} {
		name, data, err := cutCommand([]byte(c.body))
		if string(name) != c.name || string(data) != c.data || (err != nil) != c.bad {
			t.Errorf("%q: %q, %q, %v", c.body, name, data, err)
		}
	}
	ttl, context, err := parsePing([]byte("\x00\x1e0123456789abcdefXYZ"))
	if ttl != 3*time.Second || string(context) != "0123456789abcdef" || err != nil {
		t.Errorf("PING: %s, %q, %v", ttl, context, err)
	}
	if _, _, err := parsePing([]byte{0}); err == nil {
		t.Error("a PING of one byte was taken")
	}
	for data, want := range map[string]string{"\x02no": "no", "\x05no": "no", "": "", "\x00": ""} {
		if got := parseError([]byte(data)); got != want {
			t.Errorf("ERROR %q: %q", data, got)
		}
	}
}

func TestEndpoints(t *testing.T) {
	const both, connect, bind, never = 3, 1, 2, 0
	for _, c := range []struct {
		text    string
		fits    int
		network string
		address string
	}{
		{"tcp://10.0.0.1:5557", both, "tcp", "10.0.0.1:5557"},
		{"tcp://[fd00::1]:5557", both, "tcp", "[fd00::1]:5557"},
		{"tcp://[fe80::1%eth0]:5557", both, "tcp", "[fe80::1%eth0]:5557"},
		{"tcp://engine-0.engines:5557", both, "tcp", "engine-0.engines:5557"},
		{"tcp://*:5557", bind, "tcp", ":5557"},
		{"tcp://*:*", bind, "tcp", ":0"},
		{"tcp://127.0.0.1:0", bind, "tcp", "127.0.0.1:0"},
		{"ipc:///run/events", both, "unix", "/run/events"},
		{"ipc://@events", both, "unix", "@events"},
		{"ipc://", never, "", ""},
		{"ipc://" + strings.Repeat("a", 104), never, "", ""},
		{"tcp://fd00::1:5557", never, "", ""},
		{"tcp://:5557", never, "", ""},
		{"tcp://host", never, "", ""},
		{"tcp://host:70000", never, "", ""},
		{"tcp://host:http", never, "", ""},
		{"tcp://eth0;host:5557", never, "", ""},
		{"http://host:5557", never, "", ""},
		{"inproc://events", never, "", ""},
		{"host:5557", never, "", ""},
		{"", never, "", ""},
	} {
		for _, way := range []int{connect, bind} {
			e, err := parseEndpoint(c.text, way == bind)
			if fits := c.fits&way != 0; (err == nil) != fits || fits && (e.network != c.network || e.address != c.address) {
				t.Errorf("%q, bind %t: %+v, %v", c.text, way == bind, e, err)
			}
			if err == nil != (CheckEndpoint(c.text, way == bind) == nil) {
				t.Errorf("%q: CheckEndpoint says something else", c.text)
			}
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	for field, breakIt := range map[string]func(*Config){
		"timeout":            func(c *Config) { c.Timeout = 0 },
		"heartbeat_interval": func(c *Config) { c.HeartbeatInterval = -1 },
		"heartbeat_timeout":  func(c *Config) { c.HeartbeatTimeout = 0 },
		"min_pause":          func(c *Config) { c.MinPause = 0 },
		"max_pause":          func(c *Config) { c.MaxPause = time.Millisecond },
		"max_frame":          func(c *Config) { c.MaxFrame = 0 },
		"max_frames":         func(c *Config) { c.MaxFrames = 0 },
		"max_message":        func(c *Config) { c.MaxMessage = c.MaxFrame },
		"max_peers":          func(c *Config) { c.MaxPeers = 0 },
	} {
		cfg := DefaultConfig()
		breakIt(&cfg)
		if err := cfg.Validate(); err == nil || !strings.HasPrefix(err.Error(), field+": ") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
