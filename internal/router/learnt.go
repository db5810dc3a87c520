package router

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"attache/internal/slot"
	"attache/internal/wholefile"
	"attache/internal/worker"
	"attache/scoring"
)

// learntEvery is how often what the scoring has learnt is saved.
const learntEvery = 30 * time.Second

// learntPath is where what the pool's scoring has learnt is kept; "" nowhere.
func (r *Router) learntPath(p *pool) string {
	if r.settings.Load().LearntDir == "" {
		return ""
	}
	return filepath.Join(r.settings.Load().LearntDir, p.name+".learnt.json")
}

// remind brings back what the scoring of all pools had learnt before a restart.
func (r *Router) remind() {
	for _, p := range r.pools {
		path := r.learntPath(p)
		if path == "" {
			continue
		}
		learnt, err := readLearnt(path)
		if err == nil {
			p.learnt.Store(&learnt)
			err = p.scorer.Restore(learnt, ranksOf(r.workers.Set().Pool(p.name)))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			p.learnt.Store(nil)
			r.log.Warn("what was learnt of the workers' speed cannot be used; it is learnt anew", "file", path, "error", err)
		}
	}
}

func readLearnt(path string) (l scoring.Learnt, err error) {
	f, err := os.Open(path)
	if err != nil {
		return l, err
	}
	defer func() { _ = f.Close() }() // only read
	return scoring.ReadLearnt(f)
}

// remindOf brings back what was learnt of workers that appear later.
func (r *Router) remindOf(p *pool, set *worker.Set) {
	if learnt := p.learnt.Load(); learnt != nil {
		_ = p.scorer.Restore(*learnt, ranksOf(set.Pool(p.name))) // it was taken once, and nothing of it has changed
	}
}

// note saves what the scoring of all pools has learnt.
func (r *Router) note() {
	for _, p := range r.pools {
		path := r.learntPath(p)
		if path == "" {
			continue
		}
		if err := writeLearnt(path, p.scorer.Learnt(namesOf(r.workers.Set().Pool(p.name)))); err != nil {
			r.log.Error("saving what was learnt of the workers' speed failed", "file", path, "error", err)
		}
	}
}

func writeLearnt(path string, l scoring.Learnt) error {
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	return wholefile.Replace(path, func(to io.Writer) error {
		_, err := to.Write(append(text, '\n'))
		return err
	})
}

// ranksOf names the ranks of workers over restarts.
func ranksOf(workers []*worker.Worker) map[string]slot.Slot {
	ranks := map[string]slot.Slot{}
	for _, w := range workers {
		for rank, s := range w.Slots() {
			ranks[w.Name+"/"+strconv.Itoa(rank)] = s
		}
	}
	return ranks
}

// namesOf is ranksOf the other way round.
func namesOf(workers []*worker.Worker) map[slot.Slot]string {
	names := map[slot.Slot]string{}
	for name, s := range ranksOf(workers) {
		names[s] = name
	}
	return names
}
