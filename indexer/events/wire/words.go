package wire

import "bytes"

// Tier is where a block is.
type Tier uint8

// The tiers, nearest first.
const (
	// TierUnsaid: no medium. vLLM before 2025-09 knew nothing but the device; TensorRT-LLM's removals mean every tier.
	TierUnsaid Tier = iota
	// Device is the memory of the accelerator.
	Device
	// Host is the main memory of the engine's machine.
	Host
	// Disk is storage; whose, says Locality if at all.
	Disk
	// Remote is a store that the engine shares with others.
	Remote
	// TierOther has a name that we do not know.
	TierOther
)

// String is the tier in lower case.
func (t Tier) String() string {
	names := [...]string{"unsaid", "device", "host", "disk", "remote", "other"}
	return names[min(int(t), len(names)-1)]
}

// media are the names of tiers, compared without regard to case: vLLM sends GPU, CPU and STORAGE, its Mooncake store cpu,
// SGLang GPU, CPU_PINNED, DISK and EXTERNAL, LMCache the names of its backends.
var media = []struct {
	name string
	tier Tier
}{
	{"GPU", Device}, {"CPU", Host}, {"CPU_PINNED", Host}, {"DISK", Disk}, {"STORAGE", Disk}, {"EXTERNAL", Remote},
	{"REMOTE", Remote}, {"LocalCPUBackend", Host}, {"LocalDiskBackend", Disk}, {"RemoteBackend", Remote},
}

// TierOf is the tier that an engine calls medium.
func TierOf(medium []byte) Tier {
	if string(medium) == "GPU" {
		return Device // nearly always
	}
	if len(medium) == 0 {
		return TierUnsaid
	}
	for _, m := range media {
		if len(m.name) == len(medium) && bytes.EqualFold([]byte(m.name), medium) {
			return m.tier
		}
	}
	return TierOther
}

// Spec is what kind of attention a KV cache group serves (vLLM's kv_cache_spec_kind).
type Spec uint8

// The kinds of vLLM 0.32.
const (
	SpecUnsaid Spec = iota
	FullAttention
	MLAAttention
	SlidingWindow
	SlidingWindowMLA
	Mamba
	ChunkedLocalAttention
	SinkFullAttention
	EncoderOnlyAttention
	CrossAttention
	SpecUnknown // "unknown"
	SpecOther   // a word that we do not know
)

var specs = [...]string{
	FullAttention: "full_attention", MLAAttention: "mla_attention", SlidingWindow: "sliding_window",
	SlidingWindowMLA: "sliding_window_mla", Mamba: "mamba", ChunkedLocalAttention: "chunked_local_attention",
	SinkFullAttention: "sink_full_attention", EncoderOnlyAttention: "encoder_only_attention",
	CrossAttention: "cross_attention", SpecUnknown: "unknown",
}

// String is vLLM's word; "" when it was not said, "other" for a word that we do not know.
func (s Spec) String() string {
	if int(s) < len(specs) {
		return specs[s]
	}
	return "other"
}

// Full reports whether such a group holds every block of a sequence, so that its blocks can be indexed by their tokens.
func (s Spec) Full() bool { return s == FullAttention || s == MLAAttention || s == SinkFullAttention }

// SpecOf is the kind that vLLM calls word.
func SpecOf(word []byte) Spec {
	for i, name := range specs {
		if string(word) == name {
			return Spec(i)
		}
	}
	return SpecOther
}

// Locality says whether a tier belongs to the engine (vLLM since 2026-07-17, #48281).
type Locality uint8

// The localities.
const (
	LocalityUnsaid Locality = iota
	Local
	Far           // "REMOTE"
	LocalityOther // a word that we do not know
)

// LocalityOf is the locality that vLLM calls word.
func LocalityOf(word []byte) Locality {
	switch {
	case len(word) == 0:
		return LocalityUnsaid
	case bytes.EqualFold(word, []byte("LOCAL")):
		return Local
	case bytes.EqualFold(word, []byte("REMOTE")):
		return Far
	default:
		return LocalityOther
	}
}
