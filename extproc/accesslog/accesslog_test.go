package accesslog

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	data "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	ai "github.com/envoyproxy/go-control-plane/envoy/data/ai/v3"
	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"attache/internal/router"
)

type report struct {
	Decision string
	Outcome  router.Outcome
}

type fakeReporter chan report

func (f fakeReporter) Report(decision string, o router.Outcome) { f <- report{decision, o} }

func anyOf(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func object(t *testing.T, fields map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(fields)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// entry is a log entry of a streamed answer that 10.0.0.2 served at the first attempt.
func entry(t *testing.T, change func(*data.HTTPAccessLogEntry)) *data.HTTPAccessLogEntry {
	e := &data.HTTPAccessLogEntry{
		Response: &data.HTTPResponseProperties{ResponseCode: wrapperspb.UInt32(200)},
		CommonProperties: &data.AccessLogCommon{
			UpstreamRemoteAddress: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
				Address: "10.0.0.2", PortSpecifier: &core.SocketAddress_PortValue{PortValue: 8000}}}},
			UpstreamRequestAttemptCount: 1, Duration: durationpb.New(2 * time.Second), ResponseFlags: &data.ResponseFlags{},
			CustomTags: map[string]string{"ttft_us": "708412", "engine_ttft_us": "200789"},
			Metadata: &core.Metadata{FilterMetadata: map[string]*structpb.Struct{
				"attache": object(t, map[string]any{"decision": "r1.7", "replica": "r1"})}},
		},
	}
	if change != nil {
		change(e)
	}
	return e
}

func TestOutcomes(t *testing.T) {
	served := netip.MustParseAddrPort("10.0.0.2:8000")
	good := router.Outcome{Status: 200, Served: served, Attempts: 1, TTFT: 708412 * time.Microsecond,
		EngineTTFT: 200789 * time.Microsecond, Duration: 2 * time.Second}
	with := func(change func(*router.Outcome)) router.Outcome { o := good; change(&o); return o }
	note := func(t *testing.T, e *data.HTTPAccessLogEntry, fields map[string]any) {
		fields["decision"] = "r1.7"
		e.CommonProperties.Metadata.FilterMetadata["attache"] = object(t, fields)
	}
	for _, c := range []struct {
		name   string
		change func(*data.HTTPAccessLogEntry)
		want   router.Outcome
	}{
		{"an ordinary stream", nil, good},
		{"no first byte", func(e *data.HTTPAccessLogEntry) {
			e.CommonProperties.CustomTags = map[string]string{"ttft_us": "-", "engine_ttft_us": "-"}
		}, with(func(o *router.Outcome) { o.TTFT, o.EngineTTFT = 0, 0 })},
		{"the client left", func(e *data.HTTPAccessLogEntry) {
			e.CommonProperties.ResponseFlags.DownstreamConnectionTermination = true
		}, with(func(o *router.Outcome) { o.Aborted = true })},
		{"the worker died mid-answer", func(e *data.HTTPAccessLogEntry) {
			e.CommonProperties.ResponseFlags.UpstreamProtocolError = true
		}, with(func(o *router.Outcome) { o.Broken = true })},
		{"the worker reset before it answered", func(e *data.HTTPAccessLogEntry) {
			e.CommonProperties.ResponseFlags.UpstreamRemoteReset = true
			e.CommonProperties.CustomTags = nil
		}, with(func(o *router.Outcome) { o.Unreached, o.TTFT, o.EngineTTFT = true, 0, 0 })},
		{"nobody could be reached", func(e *data.HTTPAccessLogEntry) {
			e.CommonProperties.ResponseFlags.UpstreamConnectionFailure = true
			e.CommonProperties.CustomTags, e.CommonProperties.UpstreamRemoteAddress = nil, nil
			e.CommonProperties.UpstreamRequestAttemptCount = 3
			e.Response.ResponseCode = wrapperspb.UInt32(503)
		}, router.Outcome{Status: 503, Attempts: 3, Duration: 2 * time.Second, Unreached: true}},
		{"usage from our metadata", func(e *data.HTTPAccessLogEntry) {
			note(t, e, map[string]any{"prompt_tokens": 1000, "completion_tokens": 20, "cached_tokens": 768})
		}, with(func(o *router.Outcome) {
			o.Usage, o.PromptTokens, o.CompletedTokens, o.CachedTokens, o.CachedKnown = true, 1000, 20, 768, true
		})},
		{"usage without details: reuse is not known, which is not zero", func(e *data.HTTPAccessLogEntry) {
			note(t, e, map[string]any{"prompt_tokens": 1000, "completion_tokens": 20})
		}, with(func(o *router.Outcome) { o.Usage, o.PromptTokens, o.CompletedTokens = true, 1000, 20 })},
		{"usage from Envoy's own filter", func(e *data.HTTPAccessLogEntry) {
			e.CommonProperties.Metadata.TypedFilterMetadata = map[string]*anypb.Any{"envoy.ai.token_usage": anyOf(t, &ai.TokenUsage{
				InputTokens: wrapperspb.UInt64(900), OutputTokens: wrapperspb.UInt64(30),
				InputTokenDetails: &ai.InputTokenDetails{CachedTokens: wrapperspb.UInt64(0)}})}
		}, with(func(o *router.Outcome) {
			o.Usage, o.PromptTokens, o.CompletedTokens, o.CachedKnown = true, 900, 30, true
		})},
	} {
		reports := make(fakeReporter, 1)
		s := New(reports, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		s.take(entry(t, c.change))
		got := <-reports
		if diff := cmp.Diff(report{"r1.7", c.want}, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestStream sends entries as Envoy does: a stream of batches, ours among others'.
func TestStream(t *testing.T) {
	reports := make(fakeReporter, 10)
	s := New(reports, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	l := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	s.Register(server)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := als.NewAccessLogServiceClient(conn).StreamAccessLogs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	foreign := entry(t, func(e *data.HTTPAccessLogEntry) { e.CommonProperties.Metadata = nil })
	open := entry(t, func(e *data.HTTPAccessLogEntry) {
		e.CommonProperties.Metadata = nil
		e.CommonProperties.FilterStateObjects = map[string]*anypb.Any{
			"envoy.filters.http.ext_proc": anyOf(t, object(t, map[string]any{"failed_open": true}))}
	})
	for _, batch := range [][]*data.HTTPAccessLogEntry{{entry(t, nil), foreign}, {}, {open, nil, {}}, {entry(t, nil)}} {
		err := stream.Send(&als.StreamAccessLogsMessage{LogEntries: &als.StreamAccessLogsMessage_HttpLogs{
			HttpLogs: &als.StreamAccessLogsMessage_HTTPAccessLogEntries{LogEntry: batch}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Send(&als.StreamAccessLogsMessage{}); err != nil { // TCP logs or nothing at all
		t.Fatal(err)
	}
	<-reports
	<-reports
	if n := testutil.ToFloat64(s.failOpen); n != 1 {
		t.Errorf("%v requests failed open, want 1", n)
	}
	if n := testutil.ToFloat64(s.entries.WithLabelValues("foreign")); n != 4 {
		t.Errorf("%v foreign entries, want 4", n)
	}
}
