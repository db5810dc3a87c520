package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// TestTheConfigurationChangesUnderLoad: what may change does while requests run, and no client notices; a bad file changes nothing.
func TestTheConfigurationChangesUnderLoad(t *testing.T) {
	for _, body := range []string{"BUFFERED", "FULL_DUPLEX_STREAMED"} {
		t.Run(body, func(t *testing.T) {
			r := start(t, setup{mode: "ads", body: body, engines: 2, config: "router:\n  scoring: {policy: time}\n"})
			l := r.load(12, chatRequest{tokens: 6, stream: true})
			policy := func() string {
				var pools []struct {
					Policy string `json:"policy"`
				}
				if r.api("pools", &pools) != nil || len(pools) == 0 {
					return ""
				}
				return pools[0].Policy
			}
			applied := func() float64 { return r.metric(`attache_config_reloads_total{result="applied"}`) }
			before := applied()
			for _, p := range []string{"round-robin", "dynamo", "time"} {
				r.rewriteConfig(func(text string) string {
					before, _, _ := strings.Cut(text, "router:\n  scoring:")
					return before + "router:\n  scoring: {policy: " + p + "}\n"
				})
				r.eventually("policy "+p+" decides", func() bool { return policy() == p })
			}
			r.rewriteConfig(func(text string) string { return text + "  nonsense: 1\n" })
			r.eventually("the bad file is refused", func() bool { return r.metric(`attache_config_reloads_total{result="refused"}`) == 1 })
			if status, text := r.ready(); status != http.StatusOK || !strings.Contains(text, "[degraded] config") || !strings.Contains(text, "router.nonsense") {
				t.Errorf("readiness with a bad file: %d\n%s", status, text)
			}
			if p := policy(); p != "time" {
				t.Errorf("with a bad file policy %s decides", p)
			}
			l.end()
			l.judge(t)
			if n := applied() - before; n != 3 {
				t.Errorf("%v changes were taken in, want 3", n)
			}
		})
	}
}
