package hints

// Kinds is a set of kinds of hints.
type Kinds uint32

func (k *Kinds) add(kind Kind, said bool) {
	if said {
		*k |= 1 << kind
	}
}

// Names are the names of the kinds, in their order.
func (k Kinds) Names() []string {
	var names []string
	for kind := range kinds {
		if k&(1<<kind) != 0 {
			names = append(names, kind.String())
		}
	}
	return names
}

// Said are the kinds of hints that were said and believed.
func (h *Hints) Said() (all Kinds) {
	all.add(Priority, h.PriorityFrom != Nowhere)
	all.add(StrictPriority, h.strict || h.StrictPriority != 0)
	all.add(Objective, h.Objective != "")
	all.add(PolicyClass, h.PolicyClass != "")
	all.add(Session, h.Session != "")
	all.add(ParentSession, h.ParentSession != "")
	all.add(SessionFinal, h.SessionFinal)
	all.add(Program, h.Program != "")
	all.add(ContextType, h.ContextType != "")
	all.add(PromptCacheKey, h.PromptCacheKey != "")
	all.add(OutputTokens, h.OutputTokens != 0)
	all.add(TTFT, h.TTFT != 0)
	all.add(TPOT, h.TPOT != 0)
	all.add(Deadline, h.Deadline != 0)
	all.add(CacheTTL, h.CacheTTL != 0)
	all.add(SpeculativePrefill, h.SpeculativePrefill)
	all.add(Flow, h.Flow != "")
	all.add(User, h.User != "")
	all.add(Tenant, h.Tenant != "")
	all.add(Worker, h.Worker != "")
	all.add(Rank, h.Ranked)
	all.add(Taints, h.Required[0] != "" || h.Preferred[0].Name != "")
	all.add(Policy, h.Policy != "")
	all.add(Weight, h.Weights != (Weights{}))
	all.add(Model, h.Model != "")
	return all
}
