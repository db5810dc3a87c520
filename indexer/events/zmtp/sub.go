package zmtp

import "errors"

// SubParams are what a Sub needs.
type SubParams struct {
	// Endpoint to connect to, or with Bind to listen at, as CheckEndpoint takes it.
	Endpoint string
	// Bind listens for publishers, several at a time, instead of dialling one.
	Bind bool
	// Topics are prefixes of the first frame of the messages wanted. None: every message is.
	Topics []string
	Config Config
	// Receive is given every message, in the order of its connection. The message is valid until it returns. While it runs,
	// nothing else is read or answered from this peer, so that the publisher feels a slow receiver, and loses messages when
	// its own queue is full.
	Receive func(Peer, Message)
	// Notify is told of changes. nil: nobody is.
	Notify func(Change)
}

// Sub is a SUB socket. Receive and Notify are called one at a time, for one peer in the order of what happened: Connecting,
// Connected, its messages, Lost.
type Sub struct {
	link

	receive func(Peer, Message)
	hello   []byte // the subscriptions, as they are sent on every connect
}

// NewSub makes a subscriber, and opens its listener if it binds; Run does the work.
func NewSub(p SubParams) (*Sub, error) {
	if p.Receive == nil {
		return nil, errors.New("a Sub needs a Receive")
	}
	s := &Sub{receive: p.Receive}
	topics := p.Topics
	if len(topics) == 0 {
		topics = []string{""}
	}
	for _, t := range topics {
		s.hello = appendFrame(s.hello, 0, append([]byte{subscribe}, t...))
	}
	lp := linkParams{cfg: p.Config, socket: typeSub, endpoint: p.Endpoint, bind: p.Bind, notify: p.Notify}
	if err := s.init(lp, s.serve); err != nil {
		return nil, err
	}
	return s, nil
}

// Subscriptions are messages of one frame, which begins with one of these and ends with the prefix; RFC 23.
const (
	unsubscribe = 0
	subscribe   = 1
)

func (s *Sub) serve(p Peer, _ string, c *conn) error {
	if err := c.write(s.hello); err != nil {
		return err
	}
	for {
		m, err := c.receive()
		if err != nil {
			return err
		}
		s.calls.Lock()
		s.receive(p, m)
		s.calls.Unlock()
	}
}
