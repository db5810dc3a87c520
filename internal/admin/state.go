package admin

import (
	"cmp"
	"slices"
	"time"
)

// State is everything the dashboard shows, as of one moment.
type State struct {
	At        time.Time     `json:"at"`
	Status    Status        `json:"status"`
	Readiness ReadinessView `json:"readiness"`
	Pools     []Pool        `json:"pools"`
	Workers   []Worker      `json:"workers"`
	Decisions []Decision    `json:"decisions"`
	Series    Series        `json:"series"`
}

// ReadinessView is Readiness with its conclusions spelt out.
type ReadinessView struct {
	Ready bool `json:"ready"`
	// State is the worst state of all checks.
	State CheckState `json:"state"`
	// Reasons are the details of the checks that are not ok.
	Reasons []string `json:"reasons"`
	Checks  []Check  `json:"checks"`
}

// What one frame of the stream carries of the decisions; the API has them in full.
const (
	streamDecisions  = 20
	streamCandidates = 8
)

// reader asks a Source and brings the answers into the form that is shown: lists never null, in a stable order, derived
// fields filled in.
type reader struct {
	src Source
	now func() time.Time
}

func (r reader) state() State {
	s := State{
		At: r.now().UTC(), Status: r.status(), Readiness: r.readiness(), Pools: r.pools(), Workers: r.workers(),
		Decisions: r.decisions(streamDecisions), Series: r.series(),
	}
	for i := range s.Decisions {
		d := &s.Decisions[i]
		d.Candidates = d.Candidates[:min(len(d.Candidates), streamCandidates)]
	}
	return s
}

func (r reader) status() Status {
	s := r.src.Status()
	if _, known := s.UptimeS.Get(); !known && !s.StartedAt.IsZero() {
		s.UptimeS = Seconds(r.now().Sub(s.StartedAt).Truncate(time.Second))
	}
	s.Errors, s.Envoys, s.Replicas, s.Warnings = list(s.Errors), list(s.Envoys), list(s.Replicas), list(s.Warnings)
	slices.SortStableFunc(s.Envoys, func(a, b Envoy) int { return cmp.Compare(a.Node, b.Node) })
	return s
}

func (r reader) readiness() ReadinessView {
	ready := r.src.Ready()
	v := ReadinessView{Ready: ready.Ready(), State: ready.Worst(), Reasons: []string{}, Checks: list(ready.Checks)}
	for _, c := range v.Checks {
		if c.State != OK {
			v.Reasons = append(v.Reasons, c.Name+": "+c.Detail)
		}
	}
	return v
}

func (r reader) pools() []Pool {
	pools := list(r.src.Pools())
	for i := range pools {
		pools[i].Models = list(pools[i].Models)
	}
	return pools
}

func (r reader) workers() []Worker {
	workers := list(r.src.Workers())
	slices.SortStableFunc(workers, func(a, b Worker) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Address, b.Address))
	})
	return workers
}

func (r reader) feeds() []Feed {
	feeds := list(r.src.Feeds())
	slices.SortStableFunc(feeds, func(a, b Feed) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Rank, b.Rank))
	})
	for i := range feeds {
		feeds[i].Ignored = list(feeds[i].Ignored)
	}
	return feeds
}

func (r reader) indexes() []Index {
	all := list(r.src.Indexes())
	for i := range all {
		all[i].Indexer.Evicted, all[i].Indexer.Corrections = list(all[i].Indexer.Evicted), list(all[i].Indexer.Corrections)
	}
	return all
}

func (r reader) prefixes(worker string, n int) []WorkerPrefixes {
	ranks := list(r.src.Prefixes(worker, n))
	for i := range ranks {
		ranks[i].Prefixes = list(ranks[i].Prefixes)
	}
	return ranks
}

func (r reader) decisions(limit int) []Decision {
	all := list(r.src.Decisions(limit))
	all = all[:min(len(all), limit)]
	for i := range all {
		d := &all[i]
		d.Hints = list(d.Hints)
		d.Alternatives, d.Candidates = list(d.Alternatives), list(slices.Clone(d.Candidates)) // the source may share them
		d.CandidatesTotal = max(d.CandidatesTotal, len(d.Candidates))
		for j := range d.Candidates {
			d.Candidates[j].Terms = list(d.Candidates[j].Terms)
		}
		if d.Reason == "" {
			d.Reason = Reason(*d)
		}
	}
	return all
}

func (r reader) series() Series {
	s := r.src.Series()
	s.Requests, s.Errors = list(s.Requests), list(s.Errors)
	for _, column := range []*[]Figure{&s.TTFTP50S, &s.TTFTP99S, &s.Available, &s.Captured, &s.Delivered} {
		*column = list(*column)
	}
	return s
}

// list makes a nil slice an empty one, which JSON shows as [].
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
