package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"attache/extproc"
	"attache/internal/router"
	"attache/internal/slot"
	"attache/internal/worker"
)

// runServer prints its address and serves until it is told to end.
func runServer(name, profile string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if name == "noop" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		s := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
		extprocv3.RegisterExternalProcessorServer(s, noop{})
		fmt.Println(l.Addr())
		context.AfterFunc(ctx, s.Stop)
		return s.Serve(l)
	}
	debug.SetGCPercent(400) // as the product sets it (runtime.gc_percent); the no-op has Go's default
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	log := slog.New(slog.DiscardHandler)
	reg := prometheus.NewRegistry()
	r, err := router.New(router.Params{Config: router.DefaultConfig(), Pools: []router.PoolConfig{{Name: "default"}},
		Replica: "bench", Workers: sixteen(), Now: time.Now, Log: log, Metrics: reg})
	if err != nil {
		return err
	}
	cfg := extproc.DefaultConfig()
	cfg.Listen, cfg.DrainWait, cfg.DrainTimeout = "127.0.0.1:0", 0, time.Second
	s, err := extproc.New(extproc.Params{Config: cfg, Router: reporting{r}, DefaultPool: "default", Log: log, Metrics: reg})
	if err != nil {
		return err
	}
	fmt.Println(s.Addr())
	return s.Run(ctx)
}

// reporting is the router with the access log's part: in service a report follows every request, and what it costs and
// frees belongs to the bill.
type reporting struct{ *router.Router }

func (r reporting) Route(ctx context.Context, req *router.Request) (*router.Decision, error) {
	d, err := r.Router.Route(ctx, req)
	if err == nil {
		first, _, _ := strings.Cut(d.Destinations, ",")
		r.Report(d.ID, router.Outcome{Status: 200, Served: netip.MustParseAddrPort(first), Attempts: 1, TTFT: 50 * time.Millisecond})
	}
	return d, err
}

// noop answers every message with a fixed reply, as a first ext_proc server is written.
type noop struct {
	extprocv3.UnimplementedExternalProcessorServer
}

func (noop) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		reply := &extprocv3.ProcessingResponse{}
		switch m.GetRequest().(type) {
		case *extprocv3.ProcessingRequest_RequestHeaders:
			reply.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}
		case *extprocv3.ProcessingRequest_RequestBody:
			reply.Response = &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{}}
			reply.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{
				"envoy.lb": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
					"x-gateway-destination-endpoint": structpb.NewStringValue("10.0.0.1:8000")}})}}
		}
		if err := stream.Send(reply); err != nil {
			return err
		}
	}
}

// fleet is a fixed set of workers.
type fleet struct{ set *worker.Set }

func (f fleet) Set() *worker.Set               { return f.set }
func (fleet) Report(slot.Slot, worker.Outcome) {}

func sixteen() fleet {
	var workers []*worker.Worker
	for i := range 16 {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 8000)
		workers = append(workers, worker.NewWorker(worker.Spec{Name: addr.String(), Pool: "default", Addr: addr}, slot.Slot(i), worker.Ready))
	}
	return fleet{worker.NewSet(workers...)}
}

// headersMessage is what Envoy sends first, with the headers of an ordinary client.
var headersMessage = sync.OnceValue(func() []byte {
	var headers []*core.HeaderValue
	for _, h := range [][2]string{
		{":authority", "llm.example.com"}, {":path", "/v1/chat/completions"}, {":method", "POST"}, {":scheme", "https"},
		{"content-type", "application/json"}, {"accept", "text/event-stream"}, {"user-agent", "OpenAI/Python 1.99.0"},
		{"x-request-id", "6f0d4f0e-6f0d-4f0e-8f0d-4f0e6f0d4f0e"}, {"x-forwarded-proto", "https"},
		{"x-stainless-lang", "python"}, {"x-stainless-runtime-version", "3.12.4"}, {"content-length", "8192"},
	} {
		headers = append(headers, &core.HeaderValue{Key: h[0], RawValue: []byte(h[1])})
	}
	return marshal(&extprocv3.ProcessingRequest{
		Request:        &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: &core.HeaderMap{Headers: headers}}},
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: filter.ProcessingMode_BUFFERED},
	})
})

// chatBody is a chat of about size bytes: a system prompt that all share, then what the conversation said before, and
// about a kilobyte that is this turn's own.
func chatBody(size, conversation, turn int) []byte {
	const sentence = "The scheduler keeps the prefix of every conversation where it was computed last.\\nIt costs \\\"nothing\\\" to look. "
	var b strings.Builder
	b.Grow(size + 512)
	b.WriteString(`{"model":"llama-3-70b","stream":true,"messages":[{"role":"system","content":"`)
	for b.Len() < size/2 {
		b.WriteString(sentence)
	}
	b.WriteString(`"}`)
	for n := 0; b.Len() < size-1000; n++ {
		role := [2]string{"user", "assistant"}[n%2]
		fmt.Fprintf(&b, `,{"role":"%s","content":"conversation %d, message %d: `, role, conversation, n)
		for limit := min(b.Len()+1500, size-1000); b.Len() < limit; {
			b.WriteString(sentence)
		}
		b.WriteString(`"}`)
	}
	fmt.Fprintf(&b, `,{"role":"user","content":"turn %d: `, turn)
	for b.Len() < size {
		b.WriteString(sentence)
	}
	b.WriteString(`"}`)
	b.WriteString(`],"max_tokens":256}`)
	return marshal(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
		RequestBody: &extprocv3.HttpBody{Body: []byte(b.String()), EndOfStream: true}}})
}

func marshal(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err) // a message made here always marshals
	}
	return b
}
