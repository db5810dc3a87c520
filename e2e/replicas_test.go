package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"attache/internal/state/statetest"
)

// replicas are several attaches before one set of engines, behind one Envoy, with a Redis between them.
type replicas struct {
	*rig // the first replica's

	redis *redis
	all   []*rig
}

// redis is a real server, and a way to it that can be made slow.
type redis struct {
	*statetest.Redis

	slow *slowdown
}

// startRedis starts a server on a socket, which it gets again when it is started anew.
func startRedis(t *testing.T) *redis {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("e2e: needs redis-server; run `make test`")
	}
	r := &redis{Redis: statetest.StartRedis(t)}
	r.slow = slowDown(t, r.socket())
	return r
}

func (r *redis) socket() string { return strings.TrimPrefix(r.Address, "unix://") }

// slowdown is a relay that keeps everything back for a while, each way.
type slowdown struct {
	address string

	mu    sync.Mutex
	delay time.Duration
}

func (s *slowdown) set(delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = delay
}

func (s *slowdown) now() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.delay
}

func slowDown(t *testing.T, to string) *slowdown {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := &slowdown{address: l.Addr().String()}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.relay(c, to)
		}
	}()
	return s
}

func (s *slowdown) relay(c net.Conn, to string) {
	defer c.Close()
	up, err := net.Dial("unix", to)
	if err != nil {
		return
	}
	defer up.Close()
	pass := func(dst, src net.Conn) {
		type chunk struct {
			at   time.Time
			data []byte
		}
		chunks := make(chan chunk, 4096)
		go func() {
			defer close(chunks)
			for {
				b := make([]byte, 64<<10)
				n, err := src.Read(b)
				if n > 0 {
					chunks <- chunk{time.Now(), b[:n]}
				}
				if err != nil {
					return
				}
			}
		}()
		for x := range chunks {
			time.Sleep(time.Until(x.at.Add(s.now())))
			if _, err := dst.Write(x.data); err != nil {
				break
			}
		}
		dst.Close()
		for range chunks { // until the reader has noticed
		}
	}
	go pass(up, c)
	pass(c, up)
}

// startReplicas starts n of them. What s says holds for all.
func startReplicas(t *testing.T, n int, s setup) *replicas {
	t.Helper()
	rs := &replicas{redis: startRedis(t)}
	sharing := func(int) string { return fmt.Sprintf("redis:\n  addresses: [%q]\n", rs.redis.slow.address) }
	return rs.start(t, n, s, sharing)
}

// startDirectly is startReplicas for two without Redis: the replicas tell each other directly.
func startDirectly(t *testing.T, n int, s setup) *replicas {
	t.Helper()
	var listens [2]string
	for i := range listens {
		listens[i] = "127.0.0.1:" + strconv.Itoa(freePort(t))
	}
	if s.files == nil {
		s.files = map[string]string{}
	}
	s.files["replicas"] = "a-secret-of-all-replicas\n"
	return new(replicas).start(t, n, s, func(i int) string {
		return fmt.Sprintf("replicas:\n  direct: {listen: %q, peers: [%q, %q], interval: 500ms, token_file: DIR/replicas}\n", listens[i], listens[0], listens[1])
	})
}

// start starts n replicas that share what they decide as sharing says.
func (rs *replicas) start(t *testing.T, n int, s setup, sharing func(replica int) string) *replicas {
	t.Helper()
	var extprocs, controls []string
	var ports []struct{ extproc, xds, admin int }
	for range n {
		p := struct{ extproc, xds, admin int }{freePort(t), freePort(t), freePort(t)}
		ports = append(ports, p)
		extprocs = append(extprocs, "127.0.0.1:"+strconv.Itoa(p.extproc))
		controls = append(controls, "127.0.0.1:"+strconv.Itoa(p.xds))
	}
	s.mode = "ads"
	s.gateway = fmt.Sprintf("    extproc: [%s]\n    xds: [%s]\n", strings.Join(extprocs, ", "), strings.Join(controls, ", ")) + s.gateway
	config := s.config
	for i, p := range ports {
		r := &rig{t: t, dir: t.TempDir(), setup: s, ports: p, admin: "http://127.0.0.1:" + strconv.Itoa(p.admin)}
		r.setup.config = fmt.Sprintf("replica: gateway-%d\n", i) + sharing(i) + config
		if i == 0 {
			for k := range s.engines {
				r.addEngine(fmt.Sprintf("engine-%d", k))
			}
		} else {
			r.engines = rs.all[0].engines
		}
		rs.all = append(rs.all, r)
		r.writeConfig(r.engines)
		r.startAttache()
	}
	rs.rig = rs.all[0]
	rs.startEnvoy()
	for _, r := range rs.all {
		r.url = rs.url
		r.eventually("every engine is ready", func() bool { return len(r.workers("ready")) == s.engines })
	}
	rs.together(n)
	rs.eventually("Envoy asks every replica", func() bool {
		for range 4 {
			if a, err := rs.chat(t.Context(), chatRequest{prompt: "hello"}); err != nil || a.status != 200 {
				return false
			}
		}
		for _, r := range rs.all {
			if r.metric(`attache_router_decisions_total{pool="default"}`) < 1 {
				return false
			}
		}
		return true
	})
	t.Cleanup(func() {
		if t.Failed() {
			for _, r := range rs.all {
				r.dumpLogs()
			}
		}
	})
	return rs
}

// together waits until every one of n replicas hears all others, and knows all that they have under way.
func (rs *replicas) together(n int) {
	rs.t.Helper()
	for _, r := range rs.all {
		r.eventually("the replicas hear each other", func() bool {
			return r.metric(`attache_replica_peers{pool="default",whole="true"}`) == float64(n-1) &&
				r.metric(`attache_replica_peers{pool="default",whole="false"}`) == 0
		})
	}
}

var inFlightSample = regexp.MustCompile(`(?m)^attache_router_in_flight\{pool="default",worker="[^"]*"\} (\d+)$`)

// booked is what a replica believes to be under way, at all workers.
func (r *rig) bookedByAll() (n int) {
	text, err := readAll(r.admin + "/metrics")
	if err != nil {
		return -1
	}
	for _, m := range inFlightSample.FindAllStringSubmatch(text, -1) {
		k, _ := strconv.Atoi(m[1])
		n += k
	}
	return n
}

// atRest waits until no replica believes that anything is under way.
func (rs *replicas) atRest() {
	rs.t.Helper()
	for _, r := range rs.all {
		r.eventually("nothing is booked any more", func() bool { return r.bookedByAll() == 0 })
	}
}

// TestReplicasRouteAConversationToOneWorker: whichever replica Envoy asks.
func TestReplicasRouteAConversationToOneWorker(t *testing.T) {
	for name, start := range map[string]func(*testing.T, int, setup) *replicas{"through Redis": startReplicas, "directly": startDirectly} {
		t.Run(name, func(t *testing.T) { start(t, 2, setup{engines: 3}).talk(t) })
	}
}

func (rs *replicas) talk(t *testing.T) {
	var before [2]float64
	for i, r := range rs.all {
		before[i] = r.metric(`attache_router_decisions_total{pool="default"}`)
	}
	const talks, turns = 6, 48
	strays := 0
	said, homes := make([][]string, talks), make([]string, talks)
	for turn := range turns {
		talk := turn % talks
		if said[talk] == nil {
			said[talk] = []string{words(fmt.Sprintf("talk-%d", talk), 12_000)}
		}
		a := rs.must(chatRequest{turns: said[talk], tokens: 4, stream: turn%2 == 1})
		if homes[talk] != "" && a.engine != homes[talk] {
			strays++
		}
		homes[talk] = a.engine
		said[talk] = append(said[talk], words(fmt.Sprintf("answer-%d", turn), 400), words(fmt.Sprintf("question-%d", turn), 400))
	}
	t.Logf("%d turns of %d conversations, %d went elsewhere than the one before", turns, talks, strays)
	if strays > 1 {
		t.Errorf("%d of %d turns left their worker", strays, turns)
	}
	for i, r := range rs.all {
		if n := r.metric(`attache_router_decisions_total{pool="default"}`) - before[i]; n < 5 {
			t.Errorf("replica %d made %v of %d decisions", i, n, turns)
		}
	}
	rs.all[0].drain(http.MethodPost, "engine-1")
	rs.all[1].eventually("what is drained at one replica is at the other", func() bool { return strings.Join(rs.all[1].workers("draining"), ",") == "engine-1" })
	rs.all[1].drain(http.MethodDelete, "engine-1")
	rs.all[0].eventually("and given back", func() bool { return len(rs.all[0].workers("ready")) == 3 })
	rs.atRest()
	rs.eventually("what became of every request was heard", func() bool {
		for _, r := range rs.all {
			if r.metric(`attache_router_unheard_total`) > 0 || r.metric(`attache_router_lost_reports_total{reason="other_replica"}`) > 0 {
				t.Fatal("reports of the access log did not find the replica that had decided")
			}
		}
		return rs.all[0].metric(`attache_router_outcomes_total{outcome="ok",pool="default"}`)+rs.all[1].metric(`attache_router_outcomes_total{outcome="ok",pool="default"}`) >= turns
	})
}

// drain drains a worker (POST) or gives it back (DELETE).
func (r *rig) drain(method, name string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.admin+"/api/v1/workers/"+name+"/drain", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("%s drain of %s: %v %v", method, name, resp, err)
	}
	resp.Body.Close()
}

// TestReplicaKilledUnderLoad: the other one serves, forgets what the dead one had under way, and tells it everything when it is back.
func TestReplicaKilledUnderLoad(t *testing.T) {
	for name, start := range map[string]func(*testing.T, int, setup) *replicas{"through Redis": startReplicas, "directly": startDirectly} {
		t.Run(name, func(t *testing.T) { start(t, 2, setup{engines: 3}).surviveDeath(t) })
	}
}

func (rs *replicas) surviveDeath(t *testing.T) {
	l := rs.load(16, chatRequest{tokens: 6, stream: true})
	time.Sleep(1500 * time.Millisecond)
	rs.all[1].attache.Kill()
	time.Sleep(1500 * time.Millisecond)
	rs.all[0].eventually("the dead replica is not counted any more", func() bool {
		return rs.all[0].metric(`attache_replica_peers{pool="default",whole="true"}`) == 0
	})
	rs.all[1].startAttache()
	rs.together(2)
	rs.all[1].eventually("it decides again", func() bool { return rs.all[1].metric(`attache_router_decisions_total{pool="default"}`) > 0 })
	time.Sleep(time.Second)
	l.end()
	l.judge(t)
	rs.atRest()
}

// TestReplicaPaused: one that stands still for some seconds is asked no more, and knows everything when it goes on.
func TestReplicaPaused(t *testing.T) {
	rs := startReplicas(t, 2, setup{engines: 3})
	l := rs.load(16, chatRequest{tokens: 6, stream: true})
	time.Sleep(time.Second)
	if err := rs.all[1].attache.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(7 * time.Second) // longer than its lease
	if err := rs.all[1].attache.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	rs.together(2)
	time.Sleep(2 * time.Second)
	l.end()
	l.judge(t)
	rs.atRest()
}

// TestReplicasRestartInTurn: a rolling restart loses nothing.
func TestReplicasRestartInTurn(t *testing.T) {
	rs := startReplicas(t, 2, setup{engines: 3})
	l := rs.load(16, chatRequest{tokens: 6, stream: true})
	time.Sleep(time.Second)
	for _, r := range rs.all {
		r.attache.Stop(20 * time.Second)
		r.startAttache()
		rs.together(2)
		r.eventually("it decides again", func() bool { return r.metric(`attache_router_decisions_total{pool="default"}`) > 0 })
	}
	time.Sleep(time.Second)
	l.end()
	l.judge(t)
	rs.atRest()
}

// judge wants that no client has noticed anything.
func (l *load) judge(t *testing.T) {
	t.Helper()
	t.Logf("%d ok, %d errors, %d broken", l.ok.Load(), l.errors.Load(), l.broken.Load())
	if l.errors.Load() != 0 || l.broken.Load() != 0 || l.ok.Load() == 0 {
		t.Errorf("clients saw %d errors and %d broken streams among %d answers: %s", l.errors.Load(), l.broken.Load(), l.ok.Load(), strings.Join(l.first, "; "))
	}
}

// TestRedisFails in every way: clients notice nothing, the replicas say so, and are one again soon after it is back, without a restart.
func TestRedisFails(t *testing.T) {
	rs := startReplicas(t, 2, setup{engines: 3})
	for _, c := range []struct {
		name    string
		fail    func()
		lasting time.Duration
		mend    func()
		noticed bool // it lasts long enough to be seen
	}{
		{"restart", rs.redis.Stop, 0, rs.redis.Start, false},
		{"stopped", rs.redis.Stop, 30 * time.Second, rs.redis.Start, true},
		{"paused", rs.redis.Freeze, 12 * time.Second, rs.redis.Thaw, true},
		{"slow by 2 s", func() { rs.redis.slow.set(2 * time.Second) }, 12 * time.Second, func() { rs.redis.slow.set(0) }, false},
		{"emptied", func() { rs.redis.flush(t) }, 0, func() {}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var decided [2]float64
			l := rs.load(12, chatRequest{tokens: 6, stream: true})
			time.Sleep(time.Second)
			c.fail()
			time.Sleep(c.lasting / 2)
			for i, r := range rs.all {
				decided[i] = r.metric(`attache_router_decisions_total{pool="default"}`)
				if status, text := r.ready(); status != http.StatusOK || c.noticed && !strings.Contains(text, "[degraded] replicas") {
					t.Errorf("readiness of replica %d: %d\n%s", i, status, text)
				}
			}
			time.Sleep(c.lasting / 2)
			c.mend()
			time.Sleep(500 * time.Millisecond)
			rs.together(2)
			l.end()
			l.judge(t)
			for i, r := range rs.all {
				if n := r.metric(`attache_router_decisions_total{pool="default"}`); n <= decided[i] {
					t.Errorf("replica %d made no decisions meanwhile", i)
				}
			}
			rs.atRest()
		})
	}
}

// flush empties Redis.
func (r *redis) flush(t *testing.T) {
	t.Helper()
	c, err := net.Dial("unix", r.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "FLUSHALL\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
}

// ready is what /readyz answers.
func (r *rig) ready() (status int, text string) {
	resp, err := http.Get(r.admin + "/readyz?format=text")
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// TestAWorkerRegistersAtOneReplica: all replicas know it, for as long as it renews its lease, though the one that took it in dies.
func TestAWorkerRegistersAtOneReplica(t *testing.T) {
	rs := startReplicas(t, 2, setup{engines: 1, config: "workers:\n  registration: {token_file: DIR/token, ttl: 3s}\n",
		files: map[string]string{"token": "a-token-of-some-length\n"}})
	e := rs.addEngineFor("joined", model)
	j := rs.join(e)
	both := func(want string) func() bool {
		return func() bool {
			return strings.Join(rs.all[0].workers("ready"), ",") == want && strings.Join(rs.all[1].workers("ready"), ",") == want
		}
	}
	rs.eventually("both replicas use it", both("engine-0,joined"))
	l := rs.load(8, chatRequest{tokens: 6, stream: true})
	rs.all[1].eventually("it serves", func() bool { return rs.all[1].inFlight("joined") > 0 })
	rs.all[0].attache.Kill()
	time.Sleep(time.Second)
	rs.all[0].startAttache()
	rs.together(2)
	rs.eventually("both replicas use it again", both("engine-0,joined"))
	rs.leave(j)
	e.Kill()
	rs.eventually("both replicas let it go", both("engine-0"))
	l.end()
	l.judge(t)
	rs.atRest()
}

// captured are the prompt tokens of all replicas' decisions, and of them those that the chosen workers were believed to hold.
func (rs *replicas) captured() (prompt, captured float64) {
	for _, r := range rs.all {
		prompt += r.metric(`attache_router_prompt_tokens_total{pool="default"}`)
		captured += r.metric(`attache_router_cached_tokens_total{pool="default",stage="captured"}`)
	}
	return prompt, captured
}

// TestReuseOutlivesARollingRestart: conversations go on while one replica after the other is restarted. Within five seconds of the last
// one's return as much of their prompts is found in caches as before.
func TestReuseOutlivesARollingRestart(t *testing.T) {
	rs := startReplicas(t, 2, setup{engines: 3, config: "router:\n  snapshot: {shared: true, interval: 5s}\n"})
	stop := make(chan struct{})
	var talking sync.WaitGroup
	var failed sync.Map
	for i := range 8 {
		talking.Go(func() {
			said := []string{words(fmt.Sprintf("conversation-%d", i), 24_000)}
			for turn := 0; ; turn++ {
				select {
				case <-stop:
					return
				default:
				}
				a, err := rs.chat(context.Background(), chatRequest{turns: said, tokens: 6, stream: true})
				if err != nil || a.status != 200 {
					failed.Store(fmt.Sprintf("conversation %d, turn %d", i, turn), fmt.Sprintf("status %d, %v", a.status, err))
					return
				}
				if turn%40 == 39 { // it has become long: another one of the same beginning
					said = said[:1]
				}
				said = append(said, words(fmt.Sprintf("answer-%d-%d", i, turn), 200), words(fmt.Sprintf("question-%d-%d", i, turn), 200))
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	share := func(lasting time.Duration) float64 {
		prompt, captured := rs.captured()
		time.Sleep(lasting)
		p, c := rs.captured()
		return (c - captured) / (p - prompt)
	}
	time.Sleep(3 * time.Second)
	before := share(5 * time.Second)
	for _, r := range rs.all {
		r.attache.Stop(20 * time.Second)
		r.startAttache()
		r.eventually("it is ready", func() bool { status, _ := r.ready(); return status == http.StatusOK })
		rs.together(2)
		r.eventually("it decides", func() bool { return r.metric(`attache_router_decisions_total{pool="default"}`) > 0 })
	}
	after := share(5 * time.Second)
	close(stop)
	talking.Wait()
	failed.Range(func(who, why any) bool { t.Errorf("%v: %v", who, why); return true })
	t.Logf("%.3f of prompt tokens captured before, %.3f within 5 s of the last restart: %.3f of it", before, after, after/before)
	if !(after >= .95*before) || before < .5 {
		t.Errorf("%.3f of prompt tokens captured before, %.3f after the restarts: want at least 0.95 of it", before, after)
	}
	rs.atRest()
}
