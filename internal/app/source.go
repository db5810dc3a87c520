package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"attache/internal/admin"
	"attache/internal/config"
	"attache/internal/prompt"
	"attache/internal/reload"
	"attache/internal/router"
	"attache/internal/worker"
	"attache/internal/worker/register"
	"attache/xds"
)

// source shows the operator what the components know. It only translates.
type source struct {
	configured *reload.Reloader
	version    string
	started    time.Time
	registry   *worker.Registry
	router     *router.Router
	control    *xds.Server
	windows    *windows
	serving    *atomic.Bool // ext_proc takes requests
	sharing    *sharing

	registrations *register.Registrations
}

const lastMinute = time.Minute

func (s *source) Status() admin.Status {
	sum := s.windows.all.Summary(lastMinute)
	st := admin.Status{
		Version: s.version, StartedAt: s.started, Replica: s.configured.Config().Replica, Mode: s.mode(),
		RequestsPerS: sum.RequestsPerS, ErrorsPerS: sum.ErrorsPerS, TTFTP50S: sum.TTFTP50S, TTFTP99S: sum.TTFTP99S, Reuse: sum.Reuse,
	}
	workers, feeds := s.workers()
	for _, w := range workers {
		st.RequestsTotal += w.RequestsTotal
		st.ErrorsTotal += w.FailuresTotal
		st.InFlight += w.InFlight
		if w.State != string(worker.Ready) && w.State != string(worker.Draining) {
			st.Warnings = append(st.Warnings, fmt.Sprintf("%s (%s) is %s: %s", w.Name, w.Address, w.State, w.Cause))
		}
	}
	for _, d := range s.registry.Sources() {
		if d.Err != "" {
			st.Warnings = append(st.Warnings, fmt.Sprintf("discovery %s of pool %s fails since %s, and its last list of %d workers is kept: %s", d.Name, d.Pool,
				d.Failing.Format(time.TimeOnly), d.Workers, d.Err))
		}
	}
	st.Warnings = append(st.Warnings, admin.FeedWarnings(feeds, workers, time.Now())...)
	if since, err := s.registrations.StoreFailure(); err != nil {
		st.Warnings = append(st.Warnings, fmt.Sprintf("the store of registered workers cannot be reached since %s: %v; who is known is kept",
			since.UTC().Format(time.TimeOnly+" UTC"), err))
	}
	for _, p := range s.router.Pools() {
		if p.Why == string(prompt.Mismatch) {
			st.Warnings = append(st.Warnings, fmt.Sprintf("pool %s: its engines make other tokens than its model folder says, "+
				"so prompts are cut by length; the log shows an example", p.Name))
		}
		published := slices.ContainsFunc(feeds, func(f admin.Feed) bool { return f.Pool == p.Name })
		if published && p.Rung == prompt.Approximate.String() && p.Why != string(prompt.Loading) {
			st.Warnings = append(st.Warnings, fmt.Sprintf("pool %s: its engines publish KV events, but prompts are cut by length (%s), so that "+
				"their blocks match none of them: give the pool its model's folder, prompt.model_dir, or turn events off", p.Name, p.Why))
		}
	}
	st.Warnings = append(st.Warnings, s.stale()...)
	if st.ErrorsTotal > 0 {
		st.Errors = []admin.Tally{{Name: "failed requests", Total: st.ErrorsTotal}}
	}
	st.Warnings = append(st.Warnings, s.sharing.warnings()...)
	st.Replicas = s.sharing.replicas(time.Now())
	for _, n := range s.control.Status().Nodes {
		st.Envoys = append(st.Envoys, admin.Envoy{Node: n.ID, Version: n.Version, Profile: n.Profile, ConnectedSince: n.Since, LastNack: n.LastNack})
		if n.LastNack != "" {
			st.Warnings = append(st.Warnings, fmt.Sprintf("Envoy %s refused its configuration: %s", n.ID, n.LastNack))
		}
	}
	return st
}

// stale says what of the configuration file is not in effect.
func (s *source) stale() (warnings []string) {
	state := s.configured.State()
	if state.Mistake != nil {
		warnings = append(warnings, fmt.Sprintf("the configuration file is bad, and what ran before goes on: %v", state.Mistake))
	}
	if len(state.Waiting) > 0 {
		warnings = append(warnings, "restart to apply: "+strings.Join(config.Restarts(state.Waiting), ", "))
	}
	return warnings
}

// mode says how Envoy gets its configuration, by what is connected.
func (s *source) mode() string {
	if len(s.control.Status().Nodes) == 0 {
		return "static"
	}
	return "xds"
}

func (s *source) Pools() []admin.Pool {
	var pools []admin.Pool
	set := s.registry.Set()
	for _, p := range s.router.Pools() {
		sum := s.windows.pools[p.Name].Summary(lastMinute)
		pools = append(pools, admin.Pool{
			Name: p.Name, Models: p.Models, Policy: p.Policy, WorkersReady: len(set.Eligible(p.Name)), WorkersTotal: len(set.Pool(p.Name)),
			RequestsPerS: sum.RequestsPerS, Reuse: sum.Reuse, TTFTP50S: sum.TTFTP50S, TTFTP99S: sum.TTFTP99S,
			Rung: p.Rung, RungReason: p.Why, SpeedFactor: admin.Known(p.SpeedFactor),
			Accuracy: accuracy(p.Accuracy), VerifyS: admin.Known(p.Verify.Seconds()),
		})
	}
	return pools
}

func (s *source) Workers() []admin.Worker {
	workers, _ := s.workers()
	return append(workers, departed(s.registry)...)
}

func (s *source) Registrar() admin.Registrar { return s.registrations }

// workers are all workers that have not left, and the feeds that say what they hold.
func (s *source) workers() (workers []admin.Worker, feeds []admin.Feed) {
	feeds = s.Feeds()
	overlaps := admin.Overlaps(feeds)
	held, now := s.registrations.Held(), time.Now()
	for _, w := range s.registry.Set().All() {
		v, stats := s.ranks(w), w.Stats()
		a := admin.Worker{
			Name: w.Name, Pool: w.Pool, Address: w.Endpoint, Engine: string(w.Runs()), State: string(w.State), Cause: w.Cause,
			Since: w.Since, Epoch: w.Epoch, InFlight: v.InFlight, QueueS: admin.Seconds(v.Backlog),
			CachedBlocksKnown: admin.Known(v.HeldBlocks), RequestsTotal: v.Requests, FailuresTotal: v.Failures,
			CachedShare: admin.Share(v.Delivered, v.PromptTokens), Overlap: overlaps[[2]string{w.Pool, w.Name}],
			Source: w.Source, Lease: lease(held, w, now),
		}
		a.Overlap.Mode = string(v.Mode)
		if a.CapacityLearnt = v.Learnt; v.Capacity > 0 {
			a.CapacityBlocks = admin.Known(v.Capacity)
		}
		if a.Accuracy = accuracy(v.Accuracy); v.Accuracy.Requests > 0 {
			a.Trust = admin.Known(v.Trust)
		}
		if v.TTFTP50 > 0 {
			a.TTFTP50S = admin.Seconds(v.TTFTP50)
		}
		if !stats.At.IsZero() && (stats.Err == "" || stats.Told) {
			a.EngineRunning, a.EngineWaiting, a.KVUsage = admin.Known(stats.Running), admin.Known(stats.Waiting), admin.Known(stats.KVUsage)
		}
		workers = append(workers, a)
	}
	return workers, feeds
}

// accuracy is unknown before the first request whose engine said what it reused.
func accuracy(a router.Accuracy) admin.Accuracy {
	if a.Requests == 0 {
		return admin.Accuracy{}
	}
	return admin.Accuracy{Agreed: admin.Known(a.Agreed), Kept: admin.Known(a.Kept), Foreseen: admin.Known(a.Foreseen)}
}

func (s *source) Decisions(limit int) []admin.Decision {
	var decisions []admin.Decision
	for _, d := range s.router.Decisions(limit) {
		a := admin.Decision{
			ID: d.ID, Time: d.At, RequestID: d.RequestID, Pool: d.Pool, Model: d.Model, Path: d.Path, Tenant: d.Tenant, PromptTokens: d.PromptTokens,
			Rung: d.Rung, RungReason: d.Why, Chosen: d.Named[0], Alternatives: d.Named[1:], CandidatesTotal: d.CandidatesTotal, Served: d.Served,
		}
		a.Policy, a.Excluded, a.Hints, a.WaitedS = d.Policy, d.Excluded, d.Hints, admin.Seconds(d.Waited)
		a.AvailableTokens, a.CapturedTokens = d.Available, d.Captured
		if d.Compared {
			a.Regret = admin.Known(d.Regret)
		}
		if d.PredictedTTFT > 0 {
			a.PredictedTTFTS = admin.Seconds(d.PredictedTTFT)
		}
		for _, c := range d.Candidates {
			a.Candidates = append(a.Candidates, candidate(c))
		}
		if o := d.Outcome; o != nil {
			a.Outcome, a.Attempts = o.Verdict(), o.Attempts
			if o.TTFT > 0 {
				a.TTFTS = admin.Seconds(o.TTFT)
			}
			if o.EngineTTFT > 0 {
				a.EngineTTFTS = admin.Seconds(o.EngineTTFT)
			}
			if o.CachedKnown {
				a.DeliveredCachedTokens = admin.Known(o.CachedTokens)
			}
		}
		decisions = append(decisions, a)
	}
	return decisions
}

func (s *source) Series() admin.Series { return s.windows.all.Series() }

func (s *source) Config() string { return s.configured.Config().YAML() }

func (s *source) Ready() admin.Readiness {
	set := s.registry.Set()
	ready, all := 0, len(set.All())
	for _, p := range s.configured.Config().Pools {
		ready += len(set.Eligible(p.Name))
	}
	workers := admin.Check{Name: "workers", State: admin.OK, Detail: fmt.Sprintf("%d of %d workers ready", ready, all)}
	switch {
	case all == 0:
		workers.State, workers.Detail = admin.Failed, "no workers known: give --workers host:port, pools[].workers, pools[].workers_file or pools[].discovery, or let them register"
	case ready == 0:
		workers.State = admin.Failed
	case ready < all:
		workers.State = admin.Degraded
	}
	extproc := admin.Check{Name: "extproc", State: admin.OK, Detail: "takes requests"}
	if !s.serving.Load() {
		extproc.State, extproc.Detail = admin.Failed, "not yet ready, or draining"
	}
	if n := s.router.PendingReplays(); n > 0 && extproc.State == admin.OK {
		extproc.State, extproc.Detail = admin.Failed, fmt.Sprintf("learning what %d workers hold, from their KV events or a snapshot", n)
	}
	control := admin.Check{Name: "xds", State: admin.OK}
	nodes := s.control.Status().Nodes
	control.Detail = fmt.Sprintf("%d Envoys connected", len(nodes))
	for _, n := range nodes {
		if n.LastNack != "" {
			control.State, control.Detail = admin.Degraded, fmt.Sprintf("Envoy %s refused its configuration: %s", n.ID, n.LastNack)
		}
	}
	checks := append([]admin.Check{workers, extproc, control}, s.sharing.checks()...)
	if file := s.configured.File(); file != "" {
		configured, state := admin.Check{Name: "config", State: admin.OK, Detail: "as in " + file}, s.configured.State()
		if len(state.Waiting) > 0 {
			configured.Detail = "restart to apply: " + strings.Join(config.Restarts(state.Waiting), ", ")
		}
		if state.Mistake != nil {
			configured.State, configured.Detail = admin.Degraded, fmt.Sprintf("the file is bad, and what ran before goes on: %v", state.Mistake)
		}
		checks = append(checks, configured)
	}
	return admin.Readiness{Checks: checks}
}

func (s *source) Live() error { return nil }

func (s *source) Drain(name string, on bool) error {
	err := s.registry.Drain(name, on)
	if err == nil {
		return nil
	}
	return errors.Join(errors.New("draining "+name), err)
}

func candidate(c router.ExplainedCandidate) admin.Candidate {
	a := admin.Candidate{Worker: c.Worker, CachedTokens: c.CachedTokens, Eligible: true, InFlight: admin.Known(c.Terms.InFlight),
		Total: admin.Known(c.Terms.Total), Unit: c.Terms.Unit.String(), Passed: c.Terms.Passed}
	for _, t := range c.Terms.Parts() {
		a.Terms = append(a.Terms, admin.Term{Name: t.Name, Value: admin.Known(t.Value)})
	}
	return a
}
