package sim

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestReal(t *testing.T) {
	if os.Getenv("SIM_REAL") == "" {
		t.Skip()
	}
	var engines []*rig
	var urls []*url.URL
	for i := range 4 {
		r := start(t, func(c *Config) { *c = DemoEngine(); c.Listen = "127.0.0.1:0"; c.Name = fmt.Sprint("e", i) })
		engines = append(engines, r)
		u, _ := url.Parse(r.url(""))
		urls = append(urls, u)
	}
	re := regexp.MustCompile(`Task (\d+)`)
	for _, mode := range []string{"rr", "sticky"} {
		for _, e := range engines {
			e.Reset()
		}
		var n atomic.Int64
		proxy := httputil.ReverseProxy{FlushInterval: -1, Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Rewrite: func(r *httputil.ProxyRequest) {
			i := int(n.Add(1))
			if mode == "sticky" {
				raw, _ := io.ReadAll(r.In.Body)
				r.Out.Body = io.NopCloser(bytes.NewReader(raw))
				i, _ = strconv.Atoi(string(re.FindSubmatch(raw)[1]))
			}
			r.SetURL(urls[i%4])
		}}
		srv := httptest.NewServer(&proxy)
		l := DemoLoad()
		l.URL, l.Model = srv.URL, "sim-model"
		c0 := cpu()
		rep, err := RunLoad(t.Context(), l)
		t.Logf("%s cpu %.2f core: %+v %v", mode, (cpu() - c0).Seconds()/20, rep, err)
		srv.Close()
		proxy.Transport.(*http.Transport).CloseIdleConnections()
	}
	// without the proxy
	c0 := cpu()
	var wg sync.WaitGroup
	for _, e := range engines {
		wg.Go(func() {
			l := DemoLoad()
			l.URL, l.Model, l.Conversations = e.url(""), "sim-model", l.Conversations/4
			RunLoad(t.Context(), l)
		})
	}
	wg.Wait()
	t.Logf("no proxy cpu %.2f core", (cpu() - c0).Seconds()/20)
}

func TestManyStreams(t *testing.T) {
	if os.Getenv("SIM_REAL") == "" {
		t.Skip()
	}
	var wg sync.WaitGroup
	var ok atomic.Int64
	var rigs []*rig
	for range 4 {
		rigs = append(rigs, start(t, func(c *Config) { c.MinStep = 500 * time.Millisecond; c.MaxSeqs = 1024 }))
	}
	c0 := cpu()
	began := time.Now()
	for i := range 2000 {
		r := rigs[i%4]
		wg.Go(func() {
			_, text, err := r.send(t.Context(), "POST", "/v1/chat/completions", chatBody(fmt.Sprint("hello", i), 20, `,"stream":true`))
			if err == nil && len(events(t, text)) == 22 {
				ok.Add(1)
			}
		})
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
	t.Logf("%d ok in %s, cpu %.2f core", ok.Load(), time.Since(began), (cpu()-c0).Seconds()/time.Since(began).Seconds())
}
