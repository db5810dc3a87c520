package zmtp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attache/internal/field"
)

// publisher is a bound Pub that runs until the test ends.
func publisher(t *testing.T, p PubParams) *Pub {
	t.Helper()
	p.Config = DefaultConfig()
	pub, err := NewPub(p)
	if err != nil {
		t.Fatal(err)
	}
	run(t, pub)
	return pub
}

// subscriberOf is a Sub that runs until the test ends.
func subscriberOf(t *testing.T, p SubParams) (*Sub, *journal) {
	t.Helper()
	j := new(journal)
	p.Receive, p.Notify = j.receive, j.notify
	if p.Config == (Config{}) {
		p.Config = DefaultConfig()
	}
	s, err := NewSub(p)
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	return s, j
}

func TestPublishing(t *testing.T) {
	for _, c := range []struct{ name, endpoint string }{
		{"IPv4", "tcp://127.0.0.1:*"},
		{"IPv6", "tcp://[::1]:*"},
		{"host name", "tcp://localhost:*"},
		{"all interfaces", "tcp://*:*"},
		{"ipc", "ipc://" + filepath.Join(t.TempDir(), "events")},
		{"abstract ipc", fmt.Sprintf("ipc://@attache-zmtp-%d", os.Getpid())},
	} {
		for _, subBinds := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/sub binds %t", c.name, subBinds), func(t *testing.T) {
				if c.name == "IPv6" {
					l, err := net.Listen("tcp", "[::1]:0")
					if err != nil {
						t.Skipf("no IPv6 on loopback: %v", err)
					}
					_ = l.Close()
				}
				var pub *Pub
				var j *journal
				if subBinds {
					var s *Sub
					s, j = subscriberOf(t, SubParams{Endpoint: c.endpoint, Bind: true, Topics: []string{"kv", "x"}})
					pub = publisher(t, PubParams{Endpoint: strings.Replace(s.Endpoint(), "[::]", "localhost", 1), Connect: true})
				} else {
					pub = publisher(t, PubParams{Endpoint: c.endpoint})
					at := strings.Replace(pub.Endpoint(), "[::]", "localhost", 1)
					_, j = subscriberOf(t, SubParams{Endpoint: at, Topics: []string{"kv", "x"}})
				}
				eventually(t, "subscribed", func() bool { return pub.Subscribers() == 1 })
				big := []byte(strings.Repeat("b", 300_000))
				pub.Send()
				pub.Send([]byte("k"), []byte("other topic"))
				pub.Send([]byte("kv-events"), nil, []byte("one"))
				pub.Send([]byte("x"), big)
				pub.Send([]byte("kv"))
				eventually(t, "3 messages", func() bool { return j.received() == 3 })
				want := []Message{{[]byte("kv-events"), nil, []byte("one")}, {[]byte("x"), big}, {[]byte("kv")}}
				for i, m := range j.messages {
					if !slices.EqualFunc(m, want[i], func(a, b []byte) bool { return string(a) == string(b) }) {
						t.Errorf("%.100q; want %.100q", m, want[i])
					}
				}
				if pub.Dropped() != 0 {
					t.Errorf("%d dropped", pub.Dropped())
				}
			})
		}
	}
}

// TestSubBinds takes several publishers at a time, tells them apart, and turns away those beyond the limit.
func TestSubBinds(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxPeers = 2
	j := new(journal)
	from := map[string]uint64{}
	s, err := NewSub(SubParams{Endpoint: "tcp://127.0.0.1:*", Bind: true, Config: cfg, Notify: j.notify, Receive: func(p Peer, m Message) {
		if from[string(m[0])] = p.ID; !strings.HasPrefix(p.Address, "127.0.0.1:") {
			t.Errorf("%+v", p)
		}
		j.receive(p, m)
	}})
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, s)
	a := publisher(t, PubParams{Endpoint: s.Endpoint(), Connect: true})
	b := publisher(t, PubParams{Endpoint: s.Endpoint(), Connect: true})
	eventually(t, "both are there", func() bool { return a.Subscribers() == 1 && b.Subscribers() == 1 })
	a.Send([]byte("a"))
	b.Send([]byte("b"))
	eventually(t, "a message of each", func() bool { return j.received() == 2 })
	c := publisher(t, PubParams{Endpoint: s.Endpoint(), Connect: true})
	eventually(t, "the third is turned away", func() bool { return j.count(Lost) > 0 })
	if lost := j.lost(t, 0); !errors.Is(lost.Err, ErrLimit) || lost.Peer.ID != 3 || c.Subscribers() != 0 {
		t.Errorf("%+v", lost)
	}
	stop()
	if from["a"] == from["b"] || from["a"] == 0 || from["b"] == 0 {
		t.Error(from)
	}
	if j.count(Connecting) != j.count(Lost) {
		t.Errorf("%d connecting, %d lost", j.count(Connecting), j.count(Lost))
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(s.Endpoint(), "tcp://")); err == nil {
		t.Error("it listens after its end")
	}
}

func TestStrangersAtABoundSub(t *testing.T) {
	s, j := subscriberOf(t, SubParams{Endpoint: "tcp://127.0.0.1:*", Bind: true})
	nc, err := net.Dial("tcp", strings.TrimPrefix(s.Endpoint(), "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	eventually(t, "it is turned away", func() bool { return j.count(Lost) == 1 })
	if lost := j.lost(t, 0); !errors.Is(lost.Err, ErrProtocol) || lost.Pause != 0 || !strings.Contains(lost.Err.Error(), "127.0.0.1:") {
		t.Errorf("%+v", lost)
	}
	pub := publisher(t, PubParams{Endpoint: s.Endpoint(), Connect: true})
	eventually(t, "a publisher is welcome", func() bool { return pub.Subscribers() == 1 })
}

// TestPubComesBack on the same port, as an engine that was restarted.
func TestPubComesBack(t *testing.T) {
	cfg := DefaultConfig()
	first, err := NewPub(PubParams{Endpoint: "tcp://127.0.0.1:*", Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, first)
	_, j := subscriberOf(t, SubParams{Endpoint: first.Endpoint()})
	eventually(t, "subscribed", func() bool { return first.Subscribers() == 1 })
	first.Send([]byte("before"))
	eventually(t, "a message", func() bool { return j.received() == 1 })
	stop()
	eventually(t, "lost", func() bool { return j.count(Lost) >= 1 })
	second := publisher(t, PubParams{Endpoint: first.Endpoint()})
	eventually(t, "subscribed again", func() bool { return second.Subscribers() == 1 })
	second.Send([]byte("after"))
	eventually(t, "a message", func() bool { return j.received() == 2 })
	if string(j.messages[1][0]) != "after" {
		t.Errorf("%q", j.messages)
	}
}

// TestSlowSubscriber loses what its queue cannot hold, and it alone.
func TestSlowSubscriber(t *testing.T) {
	const n = 1000
	pub := publisher(t, PubParams{Endpoint: "tcp://127.0.0.1:*", Queue: 100})
	begin, got := make(chan struct{}), make(chan uint64, n)
	slow, err := NewSub(SubParams{Endpoint: pub.Endpoint(), Config: DefaultConfig(), Receive: func(_ Peer, m Message) {
		<-begin
		got <- binary.BigEndian.Uint64(m[0])
	}})
	if err != nil {
		t.Fatal(err)
	}
	run(t, slow)
	_, quick := subscriberOf(t, SubParams{Endpoint: pub.Endpoint()})
	eventually(t, "both subscribed", func() bool { return pub.Subscribers() == 2 })
	payload := make([]byte, 32<<10) // 32 MB together, more than sockets hold
	for i := range uint64(n) {
		pub.Send(binary.BigEndian.AppendUint64(nil, i), payload)
		if i%50 == 49 {
			eventually(t, "the quick one follows", func() bool { return quick.received() == int(i)+1 })
		}
	}
	dropped := pub.Dropped()
	if dropped == 0 || dropped >= n {
		t.Fatalf("%d dropped", dropped)
	}
	close(begin)
	eventually(t, "what was not dropped arrives", func() bool { return len(got) == n-int(dropped) })
	for i := range uint64(100) {
		if seq := <-got; seq != i {
			t.Fatalf("the queue's oldest message %d is %d: new ones are dropped, not old ones", i, seq)
		}
	}
}

// TestSubscriptionsAreCounted as ZeroMQ counts them, whether they come as messages or as commands of ZMTP 3.1.
func TestSubscriptionsAreCounted(t *testing.T) {
	pub := publisher(t, PubParams{Endpoint: "tcp://127.0.0.1:*"})
	nc, err := net.Dial("tcp", strings.TrimPrefix(pub.Endpoint(), "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.Write(handGreeting())
	nc.Write(handReady("SUB"))
	if _, err := io.ReadFull(nc, make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		frame []byte
		count int
	}{
		{hand(0, "\x01kv"), 1},
		{hand(0, "\x01kv"), 1},
		{hand(0, "\x00kv"), 1},
		{hand(0, "\x00kv"), 0},
		{hand(0, "\x00kv"), 0},
		{hand(4, "\x09SUBSCRIBEkv"), 1},
		{hand(0, ""), 1},
		{hand(0, "\x07what?"), 1},
		{hand(4, "\x06CANCELkv"), 0},
		{hand(0, "\x01"), 1},
	} {
		nc.Write(c.frame)
		// What was sent is taken in before a PING behind it is answered.
		nc.Write(hand(4, "\x04PING\x00\x00"))
		for {
			flags, body, err := readFrame(nc)
			if err != nil {
				t.Fatal(err)
			}
			if flags == 4 && body == "\x04PONG" {
				break
			}
		}
		if n := pub.Subscribers(); n != c.count {
			t.Errorf("%q: %d subscribers; want %d", c.frame, n, c.count)
		}
	}
	for i := range maxTopics + 1 {
		nc.Write(hand(0, fmt.Sprintf("\x01topic %d", i)))
	}
	eventually(t, "too many subscriptions end the connection", func() bool { return pub.Subscribers() == 0 })
}

func TestSocketsSayWhatIsWrong(t *testing.T) {
	receive := func(Peer, Message) {}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	short := DefaultConfig()
	short.Timeout = 0
	for _, c := range []struct {
		name string
		make func() error
		text string
	}{
		{"no Receive", func() error {
			_, err := NewSub(SubParams{Endpoint: "tcp://a:1", Config: DefaultConfig()})
			return err
		}, "a Sub needs a Receive"},
		{"no Receive of a Router", func() error {
			_, err := NewRouter(RouterParams{Endpoint: "tcp://*:*", Config: DefaultConfig()})
			return err
		}, "a Router needs a Receive"},
		{"endpoint", func() error {
			_, err := NewSub(SubParams{Endpoint: "tcp://*:1", Config: DefaultConfig(), Receive: receive})
			return err
		}, `"tcp://*:1": must be tcp://host:port`},
		{"config", func() error {
			_, err := NewSub(SubParams{Endpoint: "tcp://a:1", Config: short, Receive: receive})
			return err
		}, "timeout: 0s: must be above 0"},
		{"taken port", func() error {
			_, err := NewSub(SubParams{Endpoint: "tcp://" + taken.Addr().String(), Bind: true, Config: DefaultConfig(), Receive: receive})
			return err
		}, "binding tcp://127.0.0.1:"},
		{"queue", func() error {
			_, err := NewPub(PubParams{Endpoint: "tcp://*:*", Queue: -1, Config: DefaultConfig()})
			return err
		}, "the Queue of a Pub must not be negative"},
		{"pub", func() error {
			_, err := NewPub(PubParams{Endpoint: "tcp://*:*", Connect: true, Config: DefaultConfig()})
			return err
		}, "must be tcp://host:port"},
		{"dealer", func() error {
			_, err := DialDealer(t.Context(), "tcp://*:*", DefaultConfig())
			return err
		}, "must be tcp://host:port"},
		{"dealer's config", func() error {
			_, err := DialDealer(t.Context(), "tcp://a:1", short)
			return err
		}, "timeout: 0s"},
	} {
		if err := c.make(); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v; want %q", c.name, err, c.text)
		}
	}
	var fe *field.Error
	if err := CheckEndpoint("nowhere", false); !errors.As(err, &fe) || fe.Path != "" {
		t.Errorf("%v is no field error", err)
	}
}
