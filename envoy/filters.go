package envoy

import (
	"maps"
	"slices"
	"time"

	accesslog "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	mutation "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	grpclog "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	commonlimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	jsonparser "github.com/envoyproxy/go-control-plane/envoy/extensions/content_parsers/json/v3"
	ai "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ai_protocol_manager/v3"
	apikey "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/api_key_auth/v3"
	bodylimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/body_size_limit/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	json2md "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/json_to_metadata/v3"
	jwt "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	locallimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	sse2md "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/sse_to_metadata/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	early "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	tag "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func filter(name string, m proto.Message) *hcm.HttpFilter {
	return &hcm.HttpFilter{Name: name, ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: pack(m)}}
}

// httpFilters in the order in which requests pass them; answers pass in reverse, which is why what reads usage stands
// behind ext_proc.
func httpFilters(p Params) []*hcm.HttpFilter {
	var fs []*hcm.HttpFilter
	if p.Security.MaxBody > 0 && p.Version >= 40 {
		fs = append(fs, filter("envoy.filters.http.body_size_limit", &bodylimit.BodySizeLimit{MaxRequestBytes: wrapperspb.UInt64(p.Security.MaxBody)}))
	}
	if len(p.Security.Keys) > 0 {
		fs = append(fs, filter("envoy.filters.http.api_key_auth", apiKeys(p.Security.Keys)))
	}
	if p.Security.JWT != nil {
		fs = append(fs, filter("envoy.filters.http.jwt_authn", jwtAuth(p.Security.JWT)))
	}
	if p.Security.RateLimit != nil {
		fs = append(fs, filter("envoy.filters.http.local_ratelimit", rateLimit(p.Security.RateLimit, p.Version)))
	}
	fs = append(fs, ExtProc(p))
	switch {
	case p.Usage == UsageAI && p.Version >= 40:
		fs = append(fs, filter("envoy.filters.http.ai_protocol_manager", &ai.AiProtocolManager{ResponseHandling: &ai.ResponseHandling{
			TokenUsage: &ai.TokenUsageExtraction{IncludeUnconfiguredRoutes: true}}}))
	case p.Usage != UsageNone:
		fs = append(fs, usageFilters()...)
	}
	return append(fs, filter("envoy.filters.http.router", &router.Router{}))
}

// ExtProc is the filter that asks attache.
func ExtProc(p Params) *hcm.HttpFilter {
	forwarded := []string{SteerNamespace, SubsetNamespace, NoteNamespace}
	mode := &extproc.ProcessingMode{
		RequestHeaderMode: extproc.ProcessingMode_SEND, RequestBodyMode: extproc.ProcessingMode_BUFFERED,
		RequestTrailerMode: extproc.ProcessingMode_SKIP, ResponseHeaderMode: extproc.ProcessingMode_SKIP,
		ResponseBodyMode: extproc.ProcessingMode_NONE, ResponseTrailerMode: extproc.ProcessingMode_SKIP,
	}
	if p.FullDuplex {
		mode.RequestBodyMode, mode.RequestTrailerMode = extproc.ProcessingMode_FULL_DUPLEX_STREAMED, extproc.ProcessingMode_SEND
		// Envoy ends a stream that is not BUFFERED once nothing more can come on it, since 1.37. Our stream's end is the request's
		// end, so that something must be able to come until then; answers have no trailers as a rule.
		mode.ResponseTrailerMode = extproc.ProcessingMode_SEND
	}
	if p.AnswerHeaders || p.AnswerBodies {
		mode.ResponseHeaderMode = extproc.ProcessingMode_SEND
	}
	service := grpcTo(AttacheCluster)
	service.RetryPolicy = &core.RetryPolicy{
		RetryOn: "connect-failure,refused-stream,unavailable,reset", NumRetries: u32(2),
		RetryBackOff: &core.BackoffStrategy{BaseInterval: ms(20 * time.Millisecond), MaxInterval: ms(200 * time.Millisecond)},
	}
	var secrets []*matcher.StringMatcher
	for _, name := range []string{"authorization", "cookie", "x-api-key"} {
		secrets = append(secrets, &matcher.StringMatcher{MatchPattern: &matcher.StringMatcher_Exact{Exact: name}, IgnoreCase: true})
	}
	return filter(ExtProcFilter, &extproc.ExternalProcessor{
		GrpcService: service, FailureModeAllow: !p.FailClosed, StatusOnError: &typev3.HttpStatus{Code: 503},
		MessageTimeout: ms(p.MessageTimeout), MaxMessageTimeout: ms(p.MaxMessageTimeout), ProcessingMode: mode,
		AllowModeOverride: p.AnswerBodies,
		MetadataOptions: &extproc.MetadataOptions{
			ForwardingNamespaces: &extproc.MetadataOptions_MetadataNamespaces{Untyped: forwarded},
			ReceivingNamespaces:  &extproc.MetadataOptions_MetadataNamespaces{Untyped: []string{SteerNamespace, NoteNamespace}},
		},
		ForwardRules: &extproc.HeaderForwardingRules{DisallowedHeaders: &matcher.ListStringMatcher{Patterns: secrets}},
	})
}

// usageFilters put the engines' token counts into our metadata, of streams and of plain JSON answers.
func usageFilters() []*hcm.HttpFilter {
	paths := []struct {
		key  string
		path []string
	}{
		{NotePromptTokens, []string{"usage", "prompt_tokens"}},
		{NoteCompletionTokens, []string{"usage", "completion_tokens"}},
		{NoteCachedTokens, []string{"usage", "prompt_tokens_details", "cached_tokens"}},
	}
	var rules []*json2md.JsonToMetadata_Rule
	var parsed []*jsonparser.JsonContentParser_RuleConfig
	for _, p := range paths {
		rule := &json2md.JsonToMetadata_Rule{OnPresent: &json2md.JsonToMetadata_KeyValuePair{
			MetadataNamespace: NoteNamespace, Key: p.key, Type: json2md.JsonToMetadata_NUMBER}}
		for _, key := range p.path {
			rule.Selectors = append(rule.Selectors, &json2md.JsonToMetadata_Selector{Selector: &json2md.JsonToMetadata_Selector_Key{Key: key}})
		}
		rules = append(rules, rule)
		parsed = append(parsed, &jsonparser.JsonContentParser_RuleConfig{Rule: rule})
	}
	return []*hcm.HttpFilter{
		filter("envoy.filters.http.sse_to_metadata", &sse2md.SseToMetadata{ResponseRules: &sse2md.SseToMetadata_ProcessingRules{
			ContentParser: &core.TypedExtensionConfig{Name: "envoy.content_parsers.json", TypedConfig: pack(&jsonparser.JsonContentParser{Rules: parsed})}}}),
		filter("envoy.filters.http.json_to_metadata", &json2md.JsonToMetadata{ResponseRules: &json2md.JsonToMetadata_MatchRules{Rules: rules}}),
	}
}

func apiKeys(keys []Key) *apikey.ApiKeyAuth {
	auth := &apikey.ApiKeyAuth{KeySources: []*apikey.KeySource{{Header: "authorization"}},
		Forwarding: &apikey.Forwarding{Header: ClientHeader, HideCredentials: true}}
	for _, k := range keys {
		auth.Credentials = append(auth.Credentials, &apikey.Credential{Key: k.Secret, Client: k.Client})
	}
	return auth
}

func jwtAuth(j *JWT) *jwt.JwtAuthentication {
	return &jwt.JwtAuthentication{
		Providers: map[string]*jwt.JwtProvider{"clients": {
			Issuer:              j.Issuer,
			JwksSourceSpecifier: &jwt.JwtProvider_LocalJwks{LocalJwks: &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: j.JWKS}}},
			ClaimToHeaders:      []*jwt.JwtClaimToHeader{{HeaderName: ClientHeader, ClaimName: j.ClientClaim}},
		}},
		Rules: []*jwt.RequirementRule{{
			Match: &ratelimit.RouteMatch{PathSpecifier: &ratelimit.RouteMatch_Prefix{Prefix: "/"}},
			RequirementType: &jwt.RequirementRule_Requires{Requires: &jwt.JwtRequirement{
				RequiresType: &jwt.JwtRequirement_ProviderName{ProviderName: "clients"}}},
		}},
	}
}

func rateLimit(r *RateLimit, v Version) *locallimit.LocalRateLimit {
	bucket := func(n uint32) *typev3.TokenBucket {
		return &typev3.TokenBucket{MaxTokens: n, TokensPerFill: u32(n), FillInterval: durationpb.New(r.Per)}
	}
	all := &core.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{Numerator: 100}}
	limit := &locallimit.LocalRateLimit{
		StatPrefix: "clients", TokenBucket: bucket(1_000_000), FilterEnabled: all, FilterEnforced: all,
		AlwaysConsumeDefaultTokenBucket: wrapperspb.Bool(false), MaxDynamicDescriptors: u32(1000),
		EnableXRatelimitHeaders: commonlimit.XRateLimitHeadersRFCVersion_DRAFT_VERSION_03, EnableRetryAfterHeader: v >= 40,
		RateLimits: []*ratelimit.RateLimit{{Actions: []*ratelimit.RateLimit_Action{{
			ActionSpecifier: &ratelimit.RateLimit_Action_RequestHeaders_{RequestHeaders: &ratelimit.RateLimit_Action_RequestHeaders{
				HeaderName: ClientHeader, DescriptorKey: "client"}}}}}},
	}
	for _, client := range slices.Sorted(maps.Keys(r.Clients)) { // in one order, or Envoy would see a change where there is none
		limit.Descriptors = append(limit.Descriptors, &commonlimit.LocalRateLimitDescriptor{TokenBucket: bucket(r.Clients[client]),
			Entries: []*commonlimit.RateLimitDescriptor_Entry{{Key: "client", Value: client}}})
	}
	limit.Descriptors = append(limit.Descriptors, &commonlimit.LocalRateLimitDescriptor{TokenBucket: bucket(r.Requests),
		Entries: []*commonlimit.RateLimitDescriptor_Entry{{Key: "client"}}}) // every other client: a bucket of its own
	return limit
}

// forgeries are the headers that clients must not set; they are removed before anything reads them.
func forgeries(p Params) *core.TypedExtensionConfig {
	names := []string{PoolHeader, DestinationHeader, ServedHeader}
	if len(p.Security.Keys) > 0 || p.Security.JWT != nil {
		names = append(names, ClientHeader)
	}
	m := &early.HeaderMutation{}
	for _, name := range names {
		m.Mutations = append(m.Mutations, &mutation.HeaderMutation{Action: &mutation.HeaderMutation_Remove{Remove: name}})
	}
	return &core.TypedExtensionConfig{Name: "envoy.http.early_header_mutation.header_mutation", TypedConfig: pack(m)}
}

// AccessLog is the logger that reports to attache.
func AccessLog() *accesslog.AccessLog {
	duration := func(name, from string) *tag.CustomTag {
		return &tag.CustomTag{Tag: name, Type: &tag.CustomTag_Value{Value: "%COMMON_DURATION(" + from + ":US_RX_BODY_BEG:us)%"}}
	}
	return &accesslog.AccessLog{Name: "envoy.access_loggers.http_grpc", ConfigType: &accesslog.AccessLog_TypedConfig{
		TypedConfig: pack(&grpclog.HttpGrpcAccessLogConfig{
			CommonConfig: &grpclog.CommonGrpcAccessLogConfig{
				LogName: "attache", TransportApiVersion: core.ApiVersion_V3, GrpcService: grpcTo(AttacheCluster),
				BufferFlushInterval: ms(200 * time.Millisecond), FilterStateObjectsToLog: []string{ExtProcFilter},
				CustomTags: []*tag.CustomTag{duration(TagTTFT, "DS_RX_BEG"), duration(TagEngineTTFT, "US_TX_END")},
			},
			AdditionalRequestHeadersToLog: []string{"x-request-id"},
		})}}
}
