package events

import (
	"math"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"attache/indexer/runs"
	"attache/internal/slot"
)

func halved(times float64) float64 { return math.Exp2(-times) }

// metrics shows the feeds and the index; they are read when somebody looks, so that events pay nothing for them.
type metrics struct {
	ledger      *Ledger
	transitions *prometheus.CounterVec
	perFeed     []figure
	state, mode *prometheus.Desc
	nobody      *prometheus.Desc
	held        *prometheus.Desc
	ignored     *prometheus.Desc
	index       []indexFigure
}

// figure is one figure of a feed.
type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*Status) float64
}

// indexFigure is one figure of the index.
type indexFigure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*runs.Stats) float64
}

func newMetrics(l *Ledger) *metrics {
	labels := []string{"worker", "rank"}
	m := &metrics{
		ledger: l,
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "attache_events_transitions_total",
			Help: "Times that a feed of KV events entered a state."}, []string{"state"}),
		state: prometheus.NewDesc("attache_events_state", "1 for the state that a worker's feed of KV events is in.",
			append(labels, "state"), nil),
		mode: prometheus.NewDesc("attache_events_mode",
			"1 for how a worker's overlap is known: exact, partial or approximate.", append(labels, "mode"), nil),
		nobody: prometheus.NewDesc("attache_events_nobody_total",
			"Batches at the pool's own socket that no worker of the pool can be told to have sent.", nil, nil),
		held: prometheus.NewDesc("attache_events_held_blocks", "Blocks that a worker holds, as its events say, by tier.",
			append(labels, "tier"), nil),
		ignored: prometheus.NewDesc("attache_events_ignored_total",
			"Events that are left out of the index, by reason: see docs/operations.md.", append(labels, "reason"), nil),
	}
	for _, s := range States() {
		m.transitions.WithLabelValues(string(s))
	}
	counter := func(name, help string, of func(*Counts) uint64) {
		m.perFeed = append(m.perFeed, figure{prometheus.NewDesc("attache_events_"+name, help, labels, nil), prometheus.CounterValue,
			func(s *Status) float64 { return float64(of(&s.Counts)) }})
	}
	counter("batches_total", "Batches applied.", func(c *Counts) uint64 { return c.Batches })
	counter("received_total", "Events in them.", func(c *Counts) uint64 { return c.Events })
	counter("received_bytes_total", "Bytes of the batches.", func(c *Counts) uint64 { return c.Bytes })
	counter("repeated_total", "Batches that had been applied already.", func(c *Counts) uint64 { return c.Repeated })
	counter("gaps_total", "Times that batches were lost.", func(c *Counts) uint64 { return c.Gaps })
	counter("gaps_closed_total", "Gaps that a replay closed.", func(c *Counts) uint64 { return c.Closed })
	counter("missed_total", "Batches found only when a silent engine was asked.", func(c *Counts) uint64 { return c.Missed })
	counter("cleared_total", "Times that all that was known of a worker was given up.", func(c *Counts) uint64 { return c.Cleared })
	counter("restarts_total", "Times that an engine's stream began anew.", func(c *Counts) uint64 { return c.Restarts })
	counter("replays_total", "Replays asked for.", func(c *Counts) uint64 { return c.Replays })
	counter("replays_failed_total", "Replays that were not answered.", func(c *Counts) uint64 { return c.FailedReplays })
	counter("unreadable_total", "Batches and events that could not be read.", func(c *Counts) uint64 { return c.Unreadable })
	counter("drifts_total", "Times that more blocks were counted than the engine has.", func(c *Counts) uint64 { return c.Drifts })
	gauge := func(name, help string, of func(*Status) float64) {
		m.perFeed = append(m.perFeed, figure{prometheus.NewDesc("attache_events_"+name, help, labels, nil), prometheus.GaugeValue, of})
	}
	gauge("lag_seconds", "How old the last batch was when it had been applied, by the engine's clock and ours.",
		func(s *Status) float64 { return s.Lag.Seconds() })
	gauge("sequence", "Number of the last batch applied.", func(s *Status) float64 { return float64(s.Sequence) })
	m.indexFigures()
	return m
}

func (m *metrics) indexFigures() {
	add := func(name, help string, kind prometheus.ValueType, of func(*runs.Stats) float64) {
		m.index = append(m.index, indexFigure{prometheus.NewDesc("attache_index_"+name, help, nil, nil), kind, of})
	}
	g, c := prometheus.GaugeValue, prometheus.CounterValue
	add("bytes", "Memory of the index of KV events; router.events.index.max_bytes bounds it.", g, func(s *runs.Stats) float64 { return float64(s.Bytes) })
	add("held_blocks", "Blocks that engines hold; a block that two engines hold counts twice.", g, func(s *runs.Stats) float64 { return float64(s.Held) })
	add("blocks", "Different blocks in the index, gaps included.", g, func(s *runs.Stats) float64 { return float64(s.Blocks) })
	add("runs", "Unbranched stretches that they lie in.", g, func(s *runs.Stats) float64 { return float64(s.Runs) })
	add("waiting_blocks", "Blocks whose parent is not known.", g, func(s *runs.Stats) float64 { return float64(s.Waiting) })
	add("stored_blocks_total", "Blocks announced and placed.", c, func(s *runs.Stats) float64 { return float64(s.StoredBlocks) })
	add("removed_blocks_total", "Blocks taken back.", c, func(s *runs.Stats) float64 { return float64(s.RemovedBlocks) })
	add("unknown_blocks_total", "Removals and moves of blocks that were not held.", c, func(s *runs.Stats) float64 { return float64(s.UnknownBlocks) })
	add("evicted_blocks_total", "Blocks forgotten because the index was full.", c, func(s *runs.Stats) float64 { return float64(s.EvictedBlocks) })
	add("refused_blocks_total", "Blocks not taken in because the index was full.", c, func(s *runs.Stats) float64 { return float64(s.RefusedBlocks) })
	add("orphan_blocks_total", "Blocks announced without a known parent.", c, func(s *runs.Stats) float64 { return float64(s.OrphanBlocks) })
	add("adopted_blocks_total", "Blocks of them whose parent appeared.", c, func(s *runs.Stats) float64 { return float64(s.AdoptedBlocks) })
}

func (m *metrics) moved(to State) { m.transitions.WithLabelValues(string(to)).Inc() }

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.transitions.Describe(ch)
	for _, d := range []*prometheus.Desc{m.state, m.mode, m.nobody, m.held, m.ignored} {
		ch <- d
	}
	for _, f := range m.perFeed {
		ch <- f.desc
	}
	for _, f := range m.index {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.transitions.Collect(ch)
	for _, s := range m.ledger.Status() {
		rank := strconv.Itoa(s.Rank)
		put := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, more ...string) {
			ch <- prometheus.MustNewConstMetric(d, kind, v, append([]string{s.Worker, rank}, more...)...)
		}
		put(m.state, prometheus.GaugeValue, 1, string(s.State))
		put(m.mode, prometheus.GaugeValue, 1, string(s.Mode))
		for t, n := range s.Held {
			put(m.held, prometheus.GaugeValue, float64(n), slot.Tier(t).String())
		}
		for r, n := range s.Counts.Ignored {
			put(m.ignored, prometheus.CounterValue, float64(n), Ignored(r).String())
		}
		for _, f := range m.perFeed {
			put(f.desc, f.kind, f.of(&s))
		}
	}
	ch <- prometheus.MustNewConstMetric(m.nobody, prometheus.CounterValue, float64(m.ledger.bound.unknown.Load()))
	stats := m.ledger.Stats()
	for _, f := range m.index {
		ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.of(&stats))
	}
}
