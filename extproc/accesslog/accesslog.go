// Package accesslog is what Envoy tells after a request: the access-log service (envoy.service.accesslog.v3), turned into
// the router's feedback.
//
// Envoy sends one entry per finished request, at most its flush interval (0.2 s) late, over long-lived streams that go
// to whichever replica Envoy chose. An entry finds its decision by the note that the decision left in the request's
// metadata; entries without a note are not ours, unless ext_proc failed open, which is counted.
package accesslog

import (
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	data "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	ai "github.com/envoyproxy/go-control-plane/envoy/data/ai/v3"
	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"attache/envoy"
	"attache/internal/router"
)

// Reporter takes in what became of a decision; *router.Router does.
type Reporter interface {
	Report(decision string, o router.Outcome)
}

// Service receives access-log streams. Safe for concurrent use.
type Service struct {
	als.UnimplementedAccessLogServiceServer

	reporter Reporter
	log      *slog.Logger
	entries  *prometheus.CounterVec
	failOpen prometheus.Counter
}

// New makes the service; Register puts it on a gRPC server.
func New(reporter Reporter, log *slog.Logger, reg prometheus.Registerer) *Service {
	s := &Service{reporter: reporter, log: log,
		entries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_accesslog_entries_total",
			Help: "Access-log entries received: reported (matched to a decision's note) or foreign (no decision was made)."}, []string{"kind"}),
		failOpen: prometheus.NewCounter(prometheus.CounterOpts{Name: "attache_accesslog_failed_open_total",
			Help: "Requests that Envoy sent on without a decision because attache did not answer."}),
	}
	for _, kind := range []string{"reported", "foreign"} {
		s.entries.WithLabelValues(kind)
	}
	reg.MustRegister(s.entries, s.failOpen)
	return s
}

// Register adds the service to a gRPC server.
func (s *Service) Register(to grpc.ServiceRegistrar) { als.RegisterAccessLogServiceServer(to, s) }

// StreamAccessLogs receives entries until Envoy closes the stream.
func (s *Service) StreamAccessLogs(stream als.AccessLogService_StreamAccessLogsServer) error {
	for {
		message, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
				return nil
			}
			return err
		}
		for _, entry := range message.GetHttpLogs().GetLogEntry() {
			s.take(entry)
		}
	}
}

func (s *Service) take(entry *data.HTTPAccessLogEntry) {
	if failedOpen(entry) {
		s.failOpen.Inc()
	}
	note := entry.GetCommonProperties().GetMetadata().GetFilterMetadata()[envoy.NoteNamespace].GetFields()
	decision := note[envoy.NoteDecision].GetStringValue()
	if decision == "" {
		s.entries.WithLabelValues("foreign").Inc()
		return
	}
	s.entries.WithLabelValues("reported").Inc()
	s.reporter.Report(decision, outcome(entry, note))
}

// outcome reads one entry (envoy.data.accesslog.v3.HTTPAccessLogEntry).
func outcome(entry *data.HTTPAccessLogEntry, note map[string]*structpb.Value) router.Outcome {
	common := entry.GetCommonProperties()
	flags := common.GetResponseFlags()
	tags := common.GetCustomTags()
	o := router.Outcome{
		Status:     int(entry.GetResponse().GetResponseCode().GetValue()),
		Served:     address(common.GetUpstreamRemoteAddress()),
		Attempts:   int(common.GetUpstreamRequestAttemptCount()),
		TTFT:       microseconds(tags[envoy.TagTTFT]),
		EngineTTFT: microseconds(tags[envoy.TagEngineTTFT]),
		Duration:   common.GetDuration().AsDuration(),
		Aborted:    flags.GetDownstreamConnectionTermination() || flags.GetDownstreamRemoteReset(),
		Unreached:  flags.GetUpstreamConnectionFailure() || flags.GetNoHealthyUpstream(),
	}
	// A worker that dies mid-answer shows as a reset of a response that had begun: with HTTP/1.1 as a protocol error.
	cut := flags.GetUpstreamConnectionTermination() || flags.GetUpstreamRemoteReset() || flags.GetUpstreamProtocolError()
	if cut && o.TTFT > 0 {
		o.Broken = true
	} else if cut {
		o.Unreached = true
	}
	readUsage(&o, common.GetMetadata(), note)
	return o
}

// readUsage takes the engine's token counts from Envoy's typed usage (1.40) or from the numbers that sse_to_metadata and
// json_to_metadata put into our note (1.38). A count that is absent is not zero.
func readUsage(o *router.Outcome, metadata *core.Metadata, note map[string]*structpb.Value) {
	if typed := metadata.GetTypedFilterMetadata()[envoy.UsageNamespace]; typed != nil {
		var usage ai.TokenUsage
		if typed.UnmarshalTo(&usage) == nil && usage.GetInputTokens() != nil {
			o.Usage = true
			o.PromptTokens = int(usage.GetInputTokens().GetValue())
			o.CompletedTokens = int(usage.GetOutputTokens().GetValue())
			cached := usage.GetInputTokenDetails().GetCachedTokens()
			o.CachedTokens, o.CachedKnown = int(cached.GetValue()), cached != nil
			return
		}
	}
	prompt, ok := note[envoy.NotePromptTokens]
	if !ok {
		return
	}
	o.Usage = true
	o.PromptTokens = int(prompt.GetNumberValue())
	o.CompletedTokens = int(note[envoy.NoteCompletionTokens].GetNumberValue())
	if cached, ok := note[envoy.NoteCachedTokens]; ok {
		o.CachedTokens, o.CachedKnown = int(cached.GetNumberValue()), true
	}
}

// failedOpen reads the ext_proc filter's own account of the request.
func failedOpen(entry *data.HTTPAccessLogEntry) bool {
	state := entry.GetCommonProperties().GetFilterStateObjects()[envoy.ExtProcFilter]
	if state == nil {
		return false
	}
	var account structpb.Struct
	return state.UnmarshalTo(&account) == nil && account.GetFields()["failed_open"].GetBoolValue()
}

func address(a *core.Address) netip.AddrPort {
	ip, err := netip.ParseAddr(a.GetSocketAddress().GetAddress())
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, uint16(a.GetSocketAddress().GetPortValue()))
}

// microseconds reads a custom tag; Envoy writes "-" where a duration has no end.
func microseconds(tag string) time.Duration {
	us, err := strconv.ParseInt(tag, 10, 64)
	if err != nil || us < 0 {
		return 0
	}
	return time.Duration(us) * time.Microsecond
}
