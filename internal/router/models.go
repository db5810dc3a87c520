package router

import (
	"slices"
	"strings"
)

// models finds the pool that a model name belongs to. It is built once and read without a lock.
type models struct {
	exact    map[string]*pool
	prefixes []prefix // longest first
	aliases  map[string]alias
	first    *pool // takes requests that name no model
	any      bool  // one pool that takes every name
}

type prefix struct {
	text string
	pool *pool
}

type alias struct {
	pool *pool
	name string // what the worker is sent
}

func newModels(configs []PoolConfig, pools []*pool) models {
	m := models{exact: map[string]*pool{}, aliases: map[string]alias{}, first: pools[0]}
	for i, c := range configs {
		for _, model := range c.Models {
			if text, ok := strings.CutSuffix(model, "*"); ok {
				m.prefixes = append(m.prefixes, prefix{text, pools[i]})
			} else {
				m.exact[model] = pools[i]
			}
		}
		for name, target := range c.Aliases {
			m.aliases[name] = alias{pools[i], target}
		}
	}
	m.any = len(configs) == 1 && len(configs[0].Models) == 0
	slices.SortFunc(m.prefixes, func(a, b prefix) int { return len(b.text) - len(a.text) })
	return m
}

// find returns the pool of a model and the name to send instead, "" to send the name as it is. Exact names come before
// aliases, aliases before prefixes. ok is false when nobody serves the model.
func (m *models) find(model string) (p *pool, rewrite string, ok bool) {
	if model == "" {
		return m.first, "", true
	}
	if p, ok := m.exact[model]; ok {
		return p, "", true
	}
	if a, ok := m.aliases[model]; ok {
		return a.pool, a.name, true
	}
	for _, p := range m.prefixes {
		if strings.HasPrefix(model, p.text) {
			return p.pool, "", true
		}
	}
	if m.any {
		return m.first, "", true
	}
	return nil, "", false
}

// names lists what is served, sorted.
func (m *models) names() []string { return m.of(nil) }

// of lists what one pool serves, sorted; nil stands for all pools.
func (m *models) of(p *pool) []string {
	var names []string
	for name, owner := range m.exact {
		if p == nil || owner == p {
			names = append(names, name)
		}
	}
	for name, a := range m.aliases {
		if p == nil || a.pool == p {
			names = append(names, name)
		}
	}
	for _, pre := range m.prefixes {
		if p == nil || pre.pool == p {
			names = append(names, pre.text+"*")
		}
	}
	slices.Sort(names)
	return names
}
