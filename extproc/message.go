package extproc

import (
	"net/netip"
	"strings"

	"google.golang.org/grpc/mem"

	"attache/envoy"
	"attache/internal/router"
)

// phase is what a ProcessingRequest carries, by the field number of its oneof
// (envoy/service/ext_proc/v3/external_processor.proto).
type phase uint8

const (
	phaseNone             phase = 0
	phaseRequestHeaders   phase = 2
	phaseResponseHeaders  phase = 3
	phaseRequestBody      phase = 4
	phaseResponseBody     phase = 5
	phaseRequestTrailers  phase = 6
	phaseResponseTrailers phase = 7
)

var phaseNames = [...]string{"none", "", "request_headers", "response_headers", "request_body", "response_body",
	"request_trailers", "response_trailers"}

// String names the phase as the proto does.
func (p phase) String() string { return phaseNames[p] }

// bodyMode is ProcessingMode.BodySendMode of the ext_proc filter.
type bodyMode uint8

const (
	modeNone            bodyMode = 0
	modeStreamed        bodyMode = 1
	modeBuffered        bodyMode = 2
	modeBufferedPartial bodyMode = 3
	modeFullDuplex      bodyMode = 4
	modeGRPC            bodyMode = 5
)

var modeNames = [...]string{"NONE", "STREAMED", "BUFFERED", "BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED", "GRPC"}

// String names the mode as Envoy's configuration does.
func (m bodyMode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return "UNKNOWN"
}

// inRequest reports whether the phase comes before the response.
func (p phase) inRequest() bool {
	return p == phaseRequestHeaders || p == phaseRequestBody || p == phaseRequestTrailers
}

// protocol is the first message's protocol_config: which body modes the gateway speaks on this stream.
type protocol struct {
	stated         bool // the gateway said; Envoy does since 1.35
	request        bodyMode
	response       bodyMode
	bodyUnprompted bool // body messages come without waiting for the reply to the headers
}

// message is one ProcessingRequest, decoded lazily: it keeps the bytes as they came off the wire and points into them.
// What it points to is valid until free. Header values are looked up by a walk, because few are ever asked for.
type message struct {
	buffer mem.Buffer // owns every slice below; nil when empty

	phase       phase
	headers     []byte // HeaderMap, in a headers or trailers phase
	body        []byte // in a body phase
	bodyFrom    int    // where body starts in buffer
	endOfStream bool
	metadata    []byte // config.core.v3.Metadata; empty when none was forwarded
	protocol    protocol
}

// free gives the bytes back to their pool; the message is empty afterwards.
func (m *message) free() {
	if m.buffer != nil {
		m.buffer.Free()
	}
	*m = message{}
}

// take moves the ownership of the bytes to a new message.
func (m *message) take() message {
	taken := *m
	*m = message{}
	return taken
}

// decode reads a ProcessingRequest. Like every protobuf reader it lets the last of repeated fields win and skips what
// it does not know.
func (m *message) decode(wire []byte) error {
	f := fields{rest: wire}
	for f.next() {
		var err error
		switch f.tag {
		case tag(2, wireBytes), tag(3, wireBytes):
			m.phase = phase(f.tag >> 3)
			err = m.decodeHeaders(f.bytes)
		case tag(4, wireBytes), tag(5, wireBytes):
			m.phase = phase(f.tag >> 3)
			m.bodyFrom = len(wire) - len(f.rest) - len(f.bytes)
			err = m.decodeBody(f.bytes)
		case tag(6, wireBytes), tag(7, wireBytes):
			m.phase = phase(f.tag >> 3)
			err = m.decodeTrailers(f.bytes)
		case tag(8, wireBytes):
			m.metadata = f.bytes
		case tag(11, wireBytes):
			err = m.protocol.decode(f.bytes)
		}
		if err != nil {
			return err
		}
	}
	return f.err
}

// decodeHeaders reads HttpHeaders{headers: 1, end_of_stream: 3}.
func (m *message) decodeHeaders(wire []byte) error {
	m.headers, m.body, m.endOfStream = nil, nil, false
	f := fields{rest: wire}
	for f.next() {
		switch f.tag {
		case tag(1, wireBytes):
			m.headers = f.bytes
		case tag(3, wireVarint):
			m.endOfStream = f.varint != 0
		}
	}
	return f.err
}

// decodeBody reads HttpBody{body: 1, end_of_stream: 2}.
func (m *message) decodeBody(wire []byte) error {
	m.headers, m.body, m.endOfStream = nil, nil, false
	base := m.bodyFrom
	f := fields{rest: wire}
	for f.next() {
		switch f.tag {
		case tag(1, wireBytes):
			m.body = f.bytes
			m.bodyFrom = base + len(wire) - len(f.rest) - len(f.bytes)
		case tag(2, wireVarint):
			m.endOfStream = f.varint != 0
		}
	}
	return f.err
}

// decodeTrailers reads HttpTrailers{trailers: 1}.
func (m *message) decodeTrailers(wire []byte) error {
	m.headers, m.body, m.endOfStream = nil, nil, false
	f := fields{rest: wire}
	for f.next() {
		if f.tag == tag(1, wireBytes) {
			m.headers = f.bytes
		}
	}
	return f.err
}

func (p *protocol) decode(wire []byte) error {
	*p = protocol{stated: true}
	f := fields{rest: wire}
	for f.next() {
		switch f.tag {
		case tag(1, wireVarint):
			p.request = bodyMode(min(f.varint, 255))
		case tag(2, wireVarint):
			p.response = bodyMode(min(f.varint, 255))
		case tag(3, wireVarint):
			p.bodyUnprompted = f.varint != 0
		}
	}
	return f.err
}

// eachHeader calls visit for every header of the map in order, with keys as Envoy sends them: lower case. Envoy fills
// raw_value, others fill value; what is filled counts.
func (m *message) eachHeader(visit func(key, value []byte)) {
	entries := fields{rest: m.headers}
	for entries.next() {
		if entries.tag != tag(1, wireBytes) {
			continue
		}
		var key, value []byte
		f := fields{rest: entries.bytes}
		for f.next() {
			switch f.tag {
			case tag(1, wireBytes):
				key = f.bytes
			case tag(2, wireBytes), tag(3, wireBytes):
				if len(f.bytes) > 0 {
					value = f.bytes
				}
			}
		}
		visit(key, value)
	}
}

// subset gathers the gateway's hint which endpoints may serve this request (Gateway API Inference Extension, endpoint
// picker protocol 004).
type subset struct{ router.Subset }

// readSubset looks for the hint in the forwarded metadata: a list of strings, or one string with commas. Entries that
// are no address are left out: they match nobody.
func (m *message) readSubset() subset {
	var hint subset
	value := structField(namespace(m.metadata, envoy.SubsetNamespace), envoy.SubsetKey)
	if value == nil {
		return hint
	}
	hint.Stated = true
	f := fields{rest: value}
	for f.next() {
		switch f.tag {
		case tag(3, wireBytes): // string_value
			hint.add(string(f.bytes))
		case tag(6, wireBytes): // list_value: ListValue{values: 1}
			list := fields{rest: f.bytes}
			for list.next() {
				element := fields{rest: list.bytes}
				for element.next() {
					if element.tag == tag(3, wireBytes) {
						hint.add(string(element.bytes))
					}
				}
			}
		}
	}
	return hint
}

func (s *subset) add(list string) {
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.TrimSpace(entry)
		if endpoint, err := netip.ParseAddrPort(entry); err == nil {
			s.Endpoints = append(s.Endpoints, endpoint)
		} else if host, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
			s.Hosts = append(s.Hosts, host)
		}
	}
}

// served is the endpoint that answered, which a gateway tells in the response phases.
func (m *message) served() string {
	value := structField(namespace(m.metadata, envoy.SteerNamespace), envoy.ServedKey)
	f := fields{rest: value}
	for f.next() {
		if f.tag == tag(3, wireBytes) {
			return string(f.bytes)
		}
	}
	return ""
}

// namespace finds one Struct of Metadata.filter_metadata (1: map<string, Struct>).
func namespace(metadata []byte, name string) []byte { return mapEntry(metadata, name) }

// structField finds one Value of a Struct (1: map<string, Value>).
func structField(structure []byte, name string) []byte { return mapEntry(structure, name) }

// mapEntry walks field 1 of a message, a protobuf map from strings to messages, for a key. The last entry of a key
// wins. A present but empty value is not nil.
func mapEntry(wire []byte, key string) []byte {
	var found []byte
	entries := fields{rest: wire}
	for entries.next() {
		if entries.tag != tag(1, wireBytes) {
			continue
		}
		var name, value []byte
		f := fields{rest: entries.bytes}
		for f.next() {
			switch f.tag {
			case tag(1, wireBytes):
				name = f.bytes
			case tag(2, wireBytes):
				value = f.bytes
			}
		}
		if string(name) == key {
			found = value
			if found == nil {
				found = []byte{}
			}
		}
	}
	return found
}
