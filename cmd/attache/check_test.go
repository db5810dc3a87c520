package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attache/internal/admin"
	"attache/internal/config"
)

// TestCheckAgainst is what stands on a terminal when a configuration is held against a running one.
func TestCheckAgainst(t *testing.T) {
	for _, c := range []struct {
		name, running, next, flags string
		status                     int
		want                       string // whole
	}{
		{"the same", "replica: gateway-7\nrouter: {alternatives: 2}", "router: {alternatives: 2}", "", 0,
			"FILE is good.\nNothing would change in URL.\n"},
		{"some of each", "replica: gateway-7", "router: {alternatives: 2}\nextproc: {listen: '127.0.0.1:1'}\nxds: {listen: '127.0.0.1:2'}", "", 0,
			"FILE is good.\nWould change at once:\n  router.alternatives: 3 -> 2\nWould change after a restart:\n" +
				"  extproc.listen: \"127.0.0.1:9002\" -> \"127.0.0.1:1\"\n  xds.listen: \"127.0.0.1:18000\" -> \"127.0.0.1:2\"\n"},
		{"flags win here, too", "extproc: {listen: '127.0.0.1:1'}", "log: {level: debug}", "--listen-extproc=127.0.0.1:1", 0,
			"FILE is good.\nWould change at once:\n  log.level: info -> debug\n"},
		{"what is not shown is not compared", "xds: {gateway: {tls: {ca: ca.pem, name: a, cert: c.pem, key: secret.pem}}}", "xds: {gateway: {tls: {ca: ca.pem, name: b, cert: c.pem, key: other.pem}}}", "", 0,
			"FILE is good.\nWould change after a restart:\n  xds.gateway.tls.name: a -> b\nNot compared, because they are not shown: 1 settings.\n"},
		{"what only goes together", "", "router: {queue: {limits: {requests: 9, max_wait: 30m}}}\nxds: {gateway: {max_message_timeout: 1h, idle_timeout: 2h}}", "", 0,
			"FILE is good.\nWould change at once:\n  router.queue.limits.requests: 0 -> 9\n  router.queue.limits.max_wait: 30s -> 30m0s\n" +
				"Would change after a restart:\n  xds.gateway.max_message_timeout: MAX -> 1h0m0s\n  xds.gateway.idle_timeout: IDLE -> 2h0m0s\n" +
				"Without a restart nothing is changed, because this does not go together with what needs a restart: router.queue.limits.max_wait: 30m0s: " +
				"must be above 0s, and with xds.gateway.message_timeout (MESSAGE) added at most xds.gateway.max_message_timeout (MAX): Envoy waits no longer for a decision\n"},
		{"a bad one", "", "log: {level: loud}", "", 1, "attache: FILE:1: log.level: \"loud\": must be \"debug\", \"info\", \"warn\" or \"error\"\n"},
		{"another version", "shards: 7", "", "", 1, "attache: URL/api/v1/config:1: shards: is not a setting; here are SETTINGS; it may run another version of attache\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "next.yaml")
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(c.next, "DIR", dir)), 0o600); err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				text := c.running
				if running, err := config.Read("running", []byte(text)); err == nil {
					text = running.YAML()
				}
				text, err := admin.Redact(text)
				if err != nil {
					t.Error(err)
				}
				fmt.Fprint(w, text)
			}))
			defer server.Close()
			args := append([]string{"check", "-c", file, "--against", server.URL}, strings.Fields(c.flags)...)
			var out, errs bytes.Buffer
			if status := run(context.Background(), args, &out, &errs); status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
			usual := config.Default().XDS.Gateway
			got := strings.NewReplacer(file, "FILE", server.URL, "URL").Replace(out.String() + errs.String())
			if i, j := strings.Index(got, "here are "), strings.Index(got, "; it may run"); i >= 0 && j > i {
				got = got[:i] + "here are SETTINGS" + got[j:]
			}
			want := strings.NewReplacer("IDLE", usual.IdleTimeout.String(), "MESSAGE", usual.MessageTimeout.String(), "MAX", usual.MaxMessageTimeout.String()).Replace(c.want)
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestCheckAgainstNobody(t *testing.T) {
	file := filepath.Join(t.TempDir(), "next.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for against, want := range map[string]string{
		"127.0.0.1:1": "no attache at http://127.0.0.1:1: connect: connection refused; is it running? Where its dashboard listens is logged at its start (admin.listen): give that with --against",
		"ftp://x":     `--against: "ftp://x": must be a URL, such as http://127.0.0.1:9902`,
	} {
		var out, errs bytes.Buffer
		if status := run(context.Background(), []string{"check", "-c", file, "--against", against}, &out, &errs); status != 1 || errs.String() != "attache: "+want+"\n" {
			t.Errorf("%s: status %d, %s", against, status, errs.String())
		}
	}
}
