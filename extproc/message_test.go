package extproc

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

func decodeMessage(t testing.TB, wire []byte) *message {
	t.Helper()
	m := &message{buffer: mem.SliceBuffer(wire)}
	if err := m.decode(wire); err != nil {
		t.Fatalf("decode: %v", err)
	}
	return m
}

func wireOf(t testing.TB, m proto.Message) []byte {
	t.Helper()
	wire, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

func headersOf(pairs ...string) *core.HeaderMap {
	m := &core.HeaderMap{}
	for i := 0; i < len(pairs); i += 2 {
		m.Headers = append(m.Headers, &core.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return m
}

// equalDecoding compares the lazy view with what generated code makes of the same bytes.
func equalDecoding(t *testing.T, m *message, want *extprocv3.ProcessingRequest) {
	t.Helper()
	var headers *core.HeaderMap
	var body []byte
	var end bool
	var p phase
	switch r := want.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		p, headers, end = phaseRequestHeaders, r.RequestHeaders.GetHeaders(), r.RequestHeaders.GetEndOfStream()
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		p, headers, end = phaseResponseHeaders, r.ResponseHeaders.GetHeaders(), r.ResponseHeaders.GetEndOfStream()
	case *extprocv3.ProcessingRequest_RequestBody:
		p, body, end = phaseRequestBody, r.RequestBody.GetBody(), r.RequestBody.GetEndOfStream()
	case *extprocv3.ProcessingRequest_ResponseBody:
		p, body, end = phaseResponseBody, r.ResponseBody.GetBody(), r.ResponseBody.GetEndOfStream()
	case *extprocv3.ProcessingRequest_RequestTrailers:
		p, headers = phaseRequestTrailers, r.RequestTrailers.GetTrailers()
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		p, headers = phaseResponseTrailers, r.ResponseTrailers.GetTrailers()
	}
	if m.phase != p || m.endOfStream != end || !bytes.Equal(m.body, body) {
		t.Fatalf("phase %s end %v body %q; want %s %v %q", m.phase, m.endOfStream, m.body, p, end, body)
	}
	if len(body) > 0 && !bytes.Equal(m.buffer.ReadOnlyData()[m.bodyFrom:m.bodyFrom+len(m.body)], body) {
		t.Fatal("bodyFrom does not point at the body")
	}
	i := 0
	m.eachHeader(func(key, value []byte) {
		if i >= len(headers.GetHeaders()) {
			t.Fatalf("one header too many: %q", key)
		}
		h := headers.GetHeaders()[i]
		wantValue := h.GetRawValue()
		if len(wantValue) == 0 {
			wantValue = []byte(h.GetValue())
		}
		if string(key) != h.GetKey() || !bytes.Equal(value, wantValue) {
			t.Fatalf("header %d: %q: %q, want %q: %q", i, key, value, h.GetKey(), wantValue)
		}
		i++
	})
	if i != len(headers.GetHeaders()) {
		t.Fatalf("%d headers, want %d", i, len(headers.GetHeaders()))
	}
	if pc := want.GetProtocolConfig(); (pc != nil) != m.protocol.stated ||
		pc != nil && (bodyMode(pc.GetRequestBodyMode()) != m.protocol.request || bodyMode(pc.GetResponseBodyMode()) != m.protocol.response) {
		t.Fatalf("protocol %+v, want %v", m.protocol, pc)
	}
}

func samples() []*extprocv3.ProcessingRequest {
	metadata := &core.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb": {Fields: map[string]*structpb.Value{
		"x-gateway-destination-endpoint-served": structpb.NewStringValue("10.0.0.2:8000")}}}}
	return []*extprocv3.ProcessingRequest{
		{},
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{
			Headers: headersOf(":path", "/v1/models", ":method", "GET", "x-empty", ""), EndOfStream: true}},
			ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: filter.ProcessingMode_FULL_DUPLEX_STREAMED}},
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{}}},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: bytes.Repeat([]byte("x"), 70000), EndOfStream: true}}},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{}}, MetadataContext: metadata},
		{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{Trailers: headersOf("a", "b")}}},
		{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{Headers: headersOf(":status", "200")}}, MetadataContext: metadata},
		{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: []byte("data: {}\n\n")}}},
		{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}, ObservabilityMode: true},
	}
}

func TestDecodeEqualsGeneratedCode(t *testing.T) {
	for _, want := range samples() {
		equalDecoding(t, decodeMessage(t, wireOf(t, want)), want)
	}
}

func TestDecodeCutShortIsAnErrorOrLess(t *testing.T) {
	for _, want := range samples() {
		wire := wireOf(t, want)
		for n := range wire {
			m := &message{}
			if m.decode(wire[:n]) == nil && proto.Unmarshal(wire[:n], &extprocv3.ProcessingRequest{}) != nil {
				t.Errorf("%v cut to %d of %d bytes is accepted, generated code refuses it", want, n, len(wire))
			}
			if len(wire) > 1000 && n > 200 {
				break
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, sample := range samples() {
		wire, err := proto.Marshal(sample)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		m := &message{buffer: mem.SliceBuffer(wire)}
		if err := m.decode(wire); err != nil {
			return
		}
		m.eachHeader(func(_, _ []byte) {})
		m.readSubset()
		m.served()
		// Where generated code reads the same bytes and writes them back unchanged, both must have understood the same.
		var want extprocv3.ProcessingRequest
		if proto.Unmarshal(wire, &want) != nil || len(want.ProtoReflect().GetUnknown()) > 0 {
			return
		}
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(&want)
		if err == nil && bytes.Equal(again, wire) {
			equalDecoding(t, m, &want)
		}
	})
}

func TestSubset(t *testing.T) {
	hint := func(v *structpb.Value) []byte {
		return wireOf(t, &extprocv3.ProcessingRequest{
			Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{}},
			MetadataContext: &core.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb.subset_hint": {
				Fields: map[string]*structpb.Value{"x-gateway-destination-endpoint-subset": v}}}}})
	}
	list := func(entries ...any) *structpb.Value {
		l, err := structpb.NewList(entries)
		if err != nil {
			t.Fatal(err)
		}
		return structpb.NewListValue(l)
	}
	here, there := netip.MustParseAddrPort("10.0.0.1:8000"), netip.MustParseAddrPort("10.0.0.1:8001")
	six := netip.MustParseAddrPort("[fd00::1]:8000")
	for _, c := range []struct {
		name    string
		wire    []byte
		stated  bool
		allowed []netip.AddrPort
	}{
		{"no hint allows everybody", wireOf(t, samples()[1]), false, []netip.AddrPort{here, there, six}},
		{"a list", hint(list("10.0.0.1:8000", "10.9.9.9:1")), true, []netip.AddrPort{here}},
		{"a string with commas", hint(structpb.NewStringValue("10.0.0.1:8001, [fd00::1]:8000")), true, []netip.AddrPort{there, six}},
		{"a bare ip means all its ports", hint(list("10.0.0.1")), true, []netip.AddrPort{here, there}},
		{"a bare IPv6 address", hint(structpb.NewStringValue("fd00::1")), true, []netip.AddrPort{six}},
		{"an empty list allows nobody", hint(list()), true, nil},
		{"an empty string allows nobody", hint(structpb.NewStringValue("")), true, nil},
		{"nonsense allows nobody", hint(list("gpu-a", 7.0)), true, nil},
	} {
		s := decodeMessage(t, c.wire).readSubset()
		if s.Stated != c.stated {
			t.Errorf("%s: stated %v", c.name, s.Stated)
		}
		for _, addr := range []netip.AddrPort{here, there, six} {
			if got, want := s.Allows(addr), slices.Contains(c.allowed, addr); got != want {
				t.Errorf("%s: %s allowed: %v, want %v", c.name, addr, got, want)
			}
		}
	}
}

func TestBufferPool(t *testing.T) {
	p := &bufferPool{}
	for _, n := range []int{0, 1, 255, 256, 257, 62_000, 1 << 20, 1<<25 + 1} {
		b := p.Get(n)
		if len(*b) != n {
			t.Errorf("Get(%d) has %d bytes", n, len(*b))
		}
		p.Put(b)
	}
	foreign := make([]byte, 1000)
	p.Put(&foreign)
	if b := p.Get(600); cap(*b) != 1024 {
		t.Errorf("a foreign buffer came back: capacity %d", cap(*b))
	}
}
