package extproc

import (
	"fmt"
	"os"
	"time"

	"attache/internal/field"
	"attache/internal/hints"
)

// Config is how Envoy reaches the ext_proc server and what is done with requests that are not routed by prefix.
type Config struct {
	// Listen is where Envoy connects to: "host:port", or "unix:///path" for a Unix socket. ext_proc, the access-log
	// service and gRPC health share it. Without TLS keep it on loopback or inside the pod.
	Listen string `yaml:"listen"`
	// TLS encrypts the connection from Envoy; unset: plain text.
	TLS *TLS `yaml:"tls"`
	// MaxBody is the largest request body that is accepted, in bytes or with a unit; larger ones are answered with 413 and
	// an OpenAI-style error. Keep it below Envoy's own limit (32MiB), or Envoy's plain-text 413 comes first.
	MaxBody field.Bytes `yaml:"max_body"`
	// MaxMessage is the largest gRPC message that is received. It must exceed Envoy's own body limit by 1MiB: a message
	// above it fails the stream, and under fail-open the request would then be routed without anybody noticing.
	MaxMessage field.Bytes `yaml:"max_message"`
	// Malformed says what happens to a body that is not the JSON its path demands: "reject" answers 400 with the byte
	// offset and what was expected, "pass" routes it by load and lets the engine answer.
	Malformed string `yaml:"malformed"`
	// Other says what happens to requests that are not inference (health, unknown paths): "load" sends them to the
	// least-loaded worker of the default pool, "pass" leaves the choice to Envoy's fallback policy.
	Other string `yaml:"other"`
	// AnswerModels answers GET /v1/models here, with the models that the pools serve. false passes it on like any other
	// request, and then one worker's answer stands for all.
	AnswerModels bool `yaml:"answer_models"`
	// IncludeUsage asks engines for token usage at the end of streams by setting stream_options.include_usage where the
	// client did not. It makes delivered reuse measurable for every stream; clients see one more chunk, without choices.
	IncludeUsage bool `yaml:"include_usage"`
	// AssumeMode is the request body mode of gateways that do not state theirs (Envoy does since 1.35): "buffered" or
	// "full_duplex". A wrong value stalls their requests until they time out.
	AssumeMode string `yaml:"assume_mode"`
	// DrainWait is how long the server says NOT_SERVING before it stops taking streams on shutdown: at least two of Envoy's
	// health check intervals (1s each), or requests meet a closed door.
	DrainWait time.Duration `yaml:"drain_wait"`
	// DrainTimeout is how long running requests may go on after that. At its end their streams are cut: harmless with
	// fail-open, fatal for streaming answers with fail-closed.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
	// RecordPanics is a folder for inputs that made a request's handler panic: hash and shape always, the bytes themselves
	// only with record_bodies. Empty: hash and shape go to the log only.
	RecordPanics string `yaml:"record_panics"`
	// RecordBodies writes the full bytes of such inputs, prompts included, to record_panics. Off: no prompt leaves memory.
	RecordBodies bool `yaml:"record_bodies"`
	// ClientHeader is the request header in which authentication in front of us names the client; it is shown as tenant.
	ClientHeader string `yaml:"client_header"`
	// ResponseHeaders is what clients are told about the decision on their request: "off", "trace" (x-attache-trace: decision, worker,
	// cached tokens, wait), "server-timing" (how long each step took) or "both". Anything but "off" makes Envoy ask attache once more
	// when an answer begins, which costs a message and about 0.2 ms, and shows clients the names of workers.
	ResponseHeaders ResponseHeaders `yaml:"response_headers"`
	// Hints says what is believed of what clients tell about a request beside its prompt: priorities, sessions, latencies.
	Hints hints.Config `yaml:"hints"`
}

// TLS is a server certificate, and optionally the authority that clients must be signed by.
type TLS struct {
	// Cert is the PEM file of the server's certificate chain.
	Cert string `yaml:"cert"`
	// Key is the PEM file of the private key.
	Key string `yaml:"key"`
	// ClientCA is a PEM file of the authorities whose client certificates are accepted (mTLS). Empty: any client.
	ClientCA string `yaml:"client_ca"`
}

// DefaultConfig listens on loopback only and answers for what it does not understand rather than guessing.
func DefaultConfig() Config {
	return Config{
		Listen:       "127.0.0.1:9002",
		MaxBody:      16 * field.MiB,
		MaxMessage:   33 * field.MiB,
		Malformed:    "reject",
		Other:        "load",
		AnswerModels: true,
		AssumeMode:   "buffered",
		DrainWait:    2 * time.Second,
		DrainTimeout: 30 * time.Second,
		ClientHeader: "x-client-id",

		ResponseHeaders: HeadersOff,
		Hints:           hints.DefaultConfig(),
	}
}

// Validate reports every field that breaks its rule.
func (c Config) Validate() error {
	var check field.Checker
	check.Under("listen", field.Address(c.Listen))
	check.Check(c.MaxBody > 0 && c.MaxBody <= field.GiB, "max_body", c.MaxBody, "must be above 0 and at most 1GiB")
	check.Check(c.MaxMessage >= c.MaxBody+field.MiB, "max_message", c.MaxMessage, "must exceed max_body by at least 1MiB")
	check.Check(c.Malformed == "reject" || c.Malformed == "pass", "malformed", c.Malformed, `must be "reject" or "pass"`)
	check.Check(c.Other == "load" || c.Other == "pass", "other", c.Other, `must be "load" or "pass"`)
	check.Check(c.AssumeMode == "buffered" || c.AssumeMode == "full_duplex", "assume_mode", c.AssumeMode,
		`must be "buffered" or "full_duplex"`)
	check.Check(c.DrainWait >= 0, "drain_wait", c.DrainWait, "must not be negative")
	check.Check(c.DrainTimeout >= 0, "drain_timeout", c.DrainTimeout, "must not be negative")
	check.Check(!c.RecordBodies || c.RecordPanics != "", "record_bodies", c.RecordBodies, "needs record_panics, the folder to write to")
	check.Check(c.ResponseHeaders.valid(), "response_headers", string(c.ResponseHeaders), `must be "off", "trace", "server-timing" or "both"`)
	check.Under("hints", c.Hints.Validate())
	if c.TLS != nil {
		check.Check(readable(c.TLS.Cert), "tls.cert", c.TLS.Cert, "must be a PEM file that can be read")
		check.Check(readable(c.TLS.Key), "tls.key", c.TLS.Key, "must be a PEM file that can be read")
		check.Check(c.TLS.ClientCA == "" || readable(c.TLS.ClientCA), "tls.client_ca", c.TLS.ClientCA,
			"must be a PEM file that can be read, or empty")
		if check.Err() == nil {
			_, err := c.TLS.load()
			check.Check(err == nil, "tls", nil, fmt.Sprint(err))
		}
	}
	return check.Err()
}

func readable(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	return f.Close() == nil
}
