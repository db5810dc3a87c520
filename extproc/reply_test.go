package extproc

import (
	"bytes"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func parseReply(t testing.TB, r reply) *extprocv3.ProcessingResponse {
	t.Helper()
	wire := r.head
	if r.tail != nil {
		wire = append(bytes.Clone(wire), r.tail.ReadOnlyData()...)
	}
	var parsed extprocv3.ProcessingResponse
	if err := proto.Unmarshal(wire, &parsed); err != nil {
		t.Fatalf("the reply does not parse: %v", err)
	}
	return &parsed
}

func option(key, value string) *core.HeaderValueOption {
	return &core.HeaderValueOption{Header: &core.HeaderValue{Key: key, RawValue: []byte(value)},
		AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD}
}

func text(v string) *structpb.Value { return structpb.NewStringValue(v) }

func object(fields map[string]*structpb.Value) *structpb.Value {
	return structpb.NewStructValue(&structpb.Struct{Fields: fields})
}

func TestRepliesAreWhatGeneratedCodeReads(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789"), 6000)
	steer := &change{
		destinations: "10.0.0.1:8000,10.0.0.2:8000",
		set:          []header{{"x-gateway-destination-endpoint", "10.0.0.1:8000,10.0.0.2:8000"}, {"content-length", "60000"}},
		remove:       []string{"x-attache-pool"}, clearRoute: true, replace: true, body: long,
		note: note{decision: "r1.7", replica: "r1", pool: "default", predictedCached: 768},
	}
	common := &extprocv3.CommonResponse{
		ClearRouteCache: true,
		HeaderMutation: &extprocv3.HeaderMutation{RemoveHeaders: []string{"x-attache-pool"}, SetHeaders: []*core.HeaderValueOption{
			option("x-gateway-destination-endpoint", "10.0.0.1:8000,10.0.0.2:8000"), option("content-length", "60000")}},
		BodyMutation: &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: long}},
	}
	metadata := &structpb.Struct{Fields: map[string]*structpb.Value{
		"envoy.lb": object(map[string]*structpb.Value{"x-gateway-destination-endpoint": text("10.0.0.1:8000,10.0.0.2:8000")}),
		"attache": object(map[string]*structpb.Value{"decision": text("r1.7"), "replica": text("r1"), "pool": text("default"),
			"predicted_cached": structpb.NewNumberValue(768)}),
	}}
	streamed := func(body []byte, end bool) *extprocv3.BodyResponse {
		return &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
			Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: &extprocv3.StreamedBodyResponse{Body: body, EndOfStream: end}}}}}
	}
	for _, c := range []struct {
		name string
		got  reply
		want *extprocv3.ProcessingResponse
	}{
		{"headers, nothing to change", answer(phaseRequestHeaders, &change{}), &extprocv3.ProcessingResponse{
			Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{Response: &extprocv3.CommonResponse{}}}}},
		{"body with everything", answer(phaseRequestBody, steer), &extprocv3.ProcessingResponse{DynamicMetadata: metadata,
			Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{Response: common}}}},
		{"response headers", answer(phaseResponseHeaders, &change{}), &extprocv3.ProcessingResponse{
			Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{Response: &extprocv3.CommonResponse{}}}}},
		{"response headers, with some added", answer(phaseResponseHeaders, &change{set: []header{{"a", "1"}}, add: []header{{"b", "2"}}}),
			&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{
				Response: &extprocv3.CommonResponse{HeaderMutation: &extprocv3.HeaderMutation{SetHeaders: []*core.HeaderValueOption{
					option("a", "1"),
					{Header: &core.HeaderValue{Key: "b", RawValue: []byte("2")}, Append: wrapperspb.Bool(true)},
				}}}}}}},
		{"request trailers", answerTrailers(phaseRequestTrailers), &extprocv3.ProcessingResponse{
			Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}}},
		{"response trailers", answerTrailers(phaseResponseTrailers), &extprocv3.ProcessingResponse{
			Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}}},
		{"echo", echo(phaseRequestBody, mem.SliceBuffer(long), false), &extprocv3.ProcessingResponse{
			Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: streamed(long, false)}}},
		{"echo of the end", echo(phaseResponseBody, nil, true), &extprocv3.ProcessingResponse{
			Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: streamed(nil, true)}}},
		{"more time", moreTime(90*time.Second + 5), &extprocv3.ProcessingResponse{OverrideMessageTimeout: durationpb.New(90*time.Second + 5)}},
		{"whole seconds", moreTime(time.Minute), &extprocv3.ProcessingResponse{OverrideMessageTimeout: durationpb.New(time.Minute)}},
		{"less than a second", moreTime(time.Millisecond), &extprocv3.ProcessingResponse{OverrideMessageTimeout: durationpb.New(time.Millisecond)}},
		{"an answer of our own", immediate(429, []header{{"retry-after", "1"}}, []byte(`{"error":{}}`), "attache_shed"),
			&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extprocv3.ImmediateResponse{
				Status: &typev3.HttpStatus{Code: 429}, Body: []byte(`{"error":{}}`), Details: "attache_shed",
				Headers: &extprocv3.HeaderMutation{SetHeaders: []*core.HeaderValueOption{option("retry-after", "1")}}}}}},
	} {
		if diff := cmp.Diff(c.want, parseReply(t, c.got), protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
