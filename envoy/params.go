package envoy

import (
	"net/netip"
	"time"
)

// Params are what the configuration of an Envoy is made of.
type Params struct {
	NodeID string // unique per Envoy
	Listen string // of the gateway's listener, host:port
	Admin  string // of Envoy's admin endpoint, host:port
	// Baseline is a second listener that routes to the default pool by round robin without asking attache; "" none.
	Baseline string

	ExtProc []string // where attache's ext_proc and access-log service are reached: host:port or unix:///path, one per replica
	TLS     *TLS     // of the connections to ExtProc; nil: plain text
	XDS     []string // where attache's control plane is reached, one per replica
	Pools   []Pool   // the first is the default

	FullDuplex        bool // request bodies FULL_DUPLEX_STREAMED instead of BUFFERED
	AnswerHeaders     bool // attache is asked again when an answer begins, to add headers to it
	AnswerBodies      bool // attache may ask for the bodies of single answers, too; needs bodies BUFFERED
	FailClosed        bool // 503 while attache is away, instead of the fallback policy
	MessageTimeout    time.Duration
	MaxMessageTimeout time.Duration
	IdleTimeout       time.Duration // of streams and routes: longest queue wait, prefill or gap between tokens
	HealthInterval    time.Duration // of Envoy's check of attache
	BodyLimit         uint32        // bytes, of a request

	Version  Version
	Usage    Usage
	Security Security
}

// Pool is one pool and, where endpoints are static, its workers.
type Pool struct {
	Name    string
	Workers []netip.AddrPort
}

// TLS is how Envoy knows attache and shows who it is itself. Files are Envoy's: it reads them, and reads them anew when
// they are replaced.
type TLS struct {
	CA        string // PEM file of the authorities that sign attache's certificate
	Name      string // in attache's certificate
	Cert, Key string // PEM files of Envoy's own, for mutual TLS; "" none
}

// Usage is how the engines' token counts are taken from answers.
type Usage string

// The ways to take usage.
const (
	UsageNone     Usage = "none"
	UsageMetadata Usage = "metadata" // sse_to_metadata and json_to_metadata, Envoy 1.38 and newer
	UsageAI       Usage = "ai"       // ai_protocol_manager, Envoy 1.40 and newer; marked work in progress by Envoy
)

// Security is what guards the gateway in front of attache.
type Security struct {
	Keys      []Key // API keys; empty: not checked
	JWT       *JWT
	RateLimit *RateLimit
	// MaxBody is a hard cap on request bodies (Envoy 1.40), also of chunked ones; 0 none.
	MaxBody uint64
}

// Key is one API key and the client that has it.
type Key struct{ Client, Secret string }

// JWT checks tokens against a key set.
type JWT struct {
	Issuer      string
	JWKS        string // the key set itself
	ClientClaim string // claim that names the client
}

// RateLimit bounds requests per client.
type RateLimit struct {
	Requests uint32
	Per      time.Duration
	Clients  map[string]uint32 // other numbers of requests for some
}
